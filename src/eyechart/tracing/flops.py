"""How many floating-point operations a pass takes, by torch's own formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of all passes inside it.

    torch's `FlopCounterMode` counts the same, module by module, and imports torch's compiler for it: a second and a
    half in every process that examines something.

    >>> with FlopCount() as counted:
    ...     _ = torch.nn.Linear(8, 4)(torch.ones(2, 8))
    >>> counted.total == 2 * 2 * 8 * 4
    True
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch asks it; True would import the compiler to keep it out of here, and nothing is compiled here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        operation = getattr(func, "_overloadpacket", func)  # one of higher order is no overload of anything
        formula: Callable[..., int] | None = flop_registry.get(operation)
        if formula is None and operation is not func and func is not torch.ops.prim.device.default:
            with self:  # what it is made of may have formulas
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result

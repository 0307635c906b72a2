"""What a tap shows at a site, in canonical axes, whatever the model's own layout is."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ReferenceType, ref

from eyechart.errors import DoesNotApply
from eyechart.sites import Anatomy, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    import torch

Thing = TypeVar("Thing")


class Look:
    """One glance at one site during one micro-batch. It dies with the operation it looks at."""

    anatomy: Anatomy
    """The subject's: set by the tap, for views that must know what comes later (the grid of the last stage)."""
    kept: dict[Hashable, Any]
    """The tap's, for as long as it lives: see `constant`."""
    latest: dict[Hashable, tuple[ReferenceType[torch.Tensor], int, torch.Tensor]]
    """The pass's: see `of_same`."""

    def __init__(
        self,
        site: Site,
        *,
        output: torch.Tensor | Callable[[], torch.Tensor] | None = None,
        skip: torch.Tensor | None = None,
        branch: torch.Tensor | None = None,
        weights: Callable[[], torch.Tensor] | None = None,
        weights_in_parts: Callable[[int], Iterator[torch.Tensor]] | None = None,
        values: Callable[[], torch.Tensor] | None = None,
    ) -> None:
        self.site = site
        self.kept, self.latest = {}, {}
        self._output, self._skip, self._branch = output, skip, branch
        self._weights, self._weights_in_parts, self._values = weights, weights_in_parts, values

    @cached_property
    def output(self) -> torch.Tensor:
        """A block's output or a junction's sum, as the model has it; an attention's in the axes of its values."""
        output: Any = self._required(self._output, "output")
        tensor: torch.Tensor = output() if callable(output) else output
        return tensor

    @property
    def skip(self) -> torch.Tensor:
        return self._required(self._skip, "skip")

    @property
    def branch(self) -> torch.Tensor:
        return self._required(self._branch, "branch")

    @cached_property
    def weights(self) -> torch.Tensor:
        """Attention weights (image, window, head, query, key); one window when attention is global."""
        return self._required(self._weights, "attention weights")()

    def some_weights(self, on_cpu: int, elsewhere: int) -> Iterator[torch.Tensor]:
        """The same for some images at a time, with about so many numbers: whole, they are the largest tensor of a pass.

        On a CPU they are also made so, and stay in its cache while they are reduced, unless another view of this site
        has asked for all of them.
        """
        if self._weights_in_parts is not None and "weights" not in self.__dict__:
            return self._weights_in_parts(on_cpu)
        weights = self.weights
        size = max(1, (on_cpu if weights.device.type == "cpu" else elsewhere) // max(1, weights[:1].numel()))
        return (weights[start : start + size] for start in range(0, len(weights), size))

    @cached_property
    def values(self) -> torch.Tensor:
        """Attention values (image, window, head, key, channel); `weights @ values` is what the attention returned."""
        return self._required(self._values, "attention values")()

    def tokens(self, tensor: torch.Tensor) -> torch.Tensor:
        """(image, token, channel): prefix tokens first, then the grid row by row. A vector is one token."""
        axes = self.site.layout.axes
        if "C" not in axes:
            raise DoesNotApply(f"{self.site.name}: tokens were expected, but its axes read {axes!r}.")
        if "N" not in axes:
            tensor, axes = tensor.reshape(-1, self.site.layout.windows, *tensor.shape[1:]), "N" + axes
        if "H" in axes:
            tensor = tensor.movedim((axes.index("H"), axes.index("C")), (-2, -1)).flatten(-2)
            axes = axes.replace("H", "").replace("C", "") + "C"
        between = [axis for axis, letter in enumerate(axes) if letter not in "NC"]
        moved = tensor.permute(axes.index("N"), *between, axes.index("C"))
        return moved.flatten(1, -2) if between else moved.unsqueeze(1)

    def map(self, tensor: torch.Tensor) -> torch.Tensor:
        """(image, channel, y, x), without prefix tokens."""
        layout = self.site.layout
        if layout.grid is None:
            raise DoesNotApply(f"{self.site.name}: a grid was expected, but it has none (axes {layout.axes!r}).")
        if layout.axes == "NCYX":
            return tensor
        if layout.axes == "NYXC":
            return tensor.permute(0, 3, 1, 2)
        spatial = self.tokens(tensor)[:, layout.prefix :]
        return spatial.transpose(1, 2).reshape(len(spatial), -1, *layout.grid)

    def shares(self, tensor: torch.Tensor) -> bool:
        """Does this tensor use the memory of what is looked at?"""
        seen: list[Any] = list(self.__dict__.values())  # what was given, and what was computed once and kept
        memory = tensor.untyped_storage().data_ptr()
        return any(
            getattr(other, "untyped_storage", None) is not None and other.untyped_storage().data_ptr() == memory
            for other in seen
        )

    def constant(self, name: Hashable, make: Callable[[], Thing]) -> Thing:
        """What a view needs in every pass and is the same in each, made once for this site.

        A table that is brought to the device inside a pass makes the host wait for it, and a pass that waits cannot be
        captured. The name says for which device and precision it was made.
        """
        key = self.site.name, name
        if key not in self.kept:
            self.kept[key] = make()
        found: Thing = self.kept[key]
        return found

    def of_same(self, tensor: torch.Tensor, name: Hashable, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What `make` reads of this tensor; where it was the last to be read under this name, what was read then.

        Torch counts what is written into a tensor (ResNet's ReLU); what was read before that is not taken for it. Only
        on a CPU, since kernels of a GPU may write without being counted.
        """
        if tensor.device.type != "cpu" or tensor.is_inference():
            return make()
        reference, version, found = self.latest.get(name, (None, 0, None))
        if found is None or reference is None or reference() is not tensor or version != tensor._version:
            found = make()
            self.latest[name] = ref(tensor), tensor._version, found
        return found

    def _required(self, value: Thing | None, what: str) -> Thing:
        if value is None:
            raise DoesNotApply(f"{self.site.name} is a {self.site.role}; it has no {what}.")
        return value

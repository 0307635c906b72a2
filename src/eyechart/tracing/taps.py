"""The tap of real passes: it matches the addresses of the dry run, takes views on the spot and lets everything go.

No graph, no tensor of the pass outlives its operation: what a view returns is all that stays. The model's operations
run unchanged, so without interventions its output is bit for bit what the plain call gives.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from eyechart.errors import TapError
from eyechart.sites import Address, Anatomy, Site
from eyechart.tracing import operations as op
from eyechart.tracing.attention import attention_in, canonical, own_layout, rows_of_images
from eyechart.tracing.graph import tensors_in
from eyechart.tracing.interventions import Intervention, ReplaceAttention, ReplaceOperation, Scale
from eyechart.tracing.modules import bare, plain_attention
from eyechart.tracing.needs import View
from eyechart.tracing.views import Look

Key = tuple[str, int, int]
#: views[site name][view name]
SiteViews = dict[str, dict[str, Tensor]]


class Tap:
    """Look into `module` at the sites of its anatomy, and intervene there.

    >>> import timm
    >>> from eyechart.subjects.anatomy import anatomy_of
    >>> model, images = timm.create_model("vit_tiny_patch16_224", depth=1).eval(), torch.randn(2, 3, 224, 224)
    >>> mean = View("mean", lambda look: look.tokens(look.output).mean((1, 2)))
    >>> output, views = Tap(model, anatomy_of("vit", model, images), {"blocks.0": [mean]}).run(images)
    >>> views["blocks.0"]["mean"].shape
    torch.Size([2])
    """

    def __init__(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        views: Mapping[str, Sequence[View]] | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> None:
        self.module, self.anatomy = bare(module), anatomy
        # A `call` may go around the module's own forward, and layers are many: both are met only where asked for.
        asked_for = tuple(site for site in (anatomy.input, *anatomy.layers) if site.name in (views or {}))
        self.sites = (*asked_for, *anatomy.sites)
        sites_by_name = {site.name: site for site in self.sites}
        self._views = {
            _site_named(sites_by_name, name, anatomy).name: tuple(asked) for name, asked in (views or {}).items()
        }
        self._changes: dict[str, Scale | ReplaceAttention] = {}
        self._modules: dict[str, ReplaceOperation] = {}
        self._operations: dict[Key, ReplaceOperation] = {}
        for change in interventions:
            self._register(change, sites_by_name)
        self._at: dict[Key, list[Site]] = {}
        self._inputs: dict[tuple[str, int], list[Site]] = {}
        self._outputs: dict[tuple[str, int], list[Site]] = {}
        for site in self.sites:
            address = site.address
            if address.name in ("input", "output"):
                where = self._inputs if address.name == "input" else self._outputs
                where.setdefault((address.path, address.call), []).append(site)
            else:
                self._at.setdefault((address.path, address.call, address.operation), []).append(site)
        self._hooked = {site.address.path for site in self.sites} | {""}
        self._kept: dict[Hashable, Any] = {}

    def _register(self, change: Intervention, sites_by_name: Mapping[str, Site]) -> None:
        if isinstance(change, ReplaceOperation):
            if isinstance(change.at, Address):
                self._operations[change.at.path, change.at.call, change.at.operation] = change
            elif change.at in dict(self.module.named_modules()):
                self._modules[change.at] = change
            else:
                raise TapError(f"{self.anatomy.subject} has no module {change.at!r} to replace.")
            return
        site = _site_named(sites_by_name, change.site, self.anatomy)
        needed = "attention" if isinstance(change, ReplaceAttention) else "junction"
        if site.role != needed:
            raise TapError(
                f"{type(change).__name__} needs a site of role {needed}, but {site.name!r} is {_a(site.role)}."
            )
        if site.name in self._changes:
            raise TapError(f"Two interventions at {site.name!r}: a pass can make one change at a site.")
        self._changes[site.name] = change

    @torch.no_grad()
    def run(self, images: Tensor, call: Callable[[Tensor], Any] | None = None) -> tuple[Any, SiteViews]:
        """The output as the plain call gives it, and the views of the whole batch."""
        return self._run(images, call, whole=True)

    @torch.enable_grad()
    def run_with_gradients(self, images: Tensor, call: Callable[[Tensor], Any] | None = None) -> tuple[Any, SiteViews]:
        """The same, differentiable: views hang on the graph of the pass, so a backward pass can start from them."""
        return self._run(images, call, whole=True)

    @torch.no_grad()
    def run_in_pieces(
        self, images: Tensor, micro: int, call: Callable[[Tensor], Any] | None = None
    ) -> tuple[Any, SiteViews]:
        """The same in micro-batches: what views take is joined on the CPU and only then reduced."""
        outputs, pieces = [], []
        for piece in torch.split(images, micro):
            output, views = self._run(piece, call, whole=False)
            outputs.append(to_cpu(output))
            pieces.append(views)
        joined: SiteViews = join(pieces)
        for site, asked in self._views.items():
            for view in asked:
                if view.reduce is not None:
                    joined[site][view.name] = view.reduce(joined[site][view.name])
        return join(outputs), joined

    def _run(self, images: Tensor, call: Callable[[Tensor], Any] | None, *, whole: bool) -> tuple[Any, SiteViews]:
        watch = _Pass(self, whole)
        with self._module_hooks(watch), plain_attention(), watch:
            output = (call or self.module)(images)
        watch.finish()
        return output, watch.views

    @contextmanager
    def _module_hooks(self, watch: _Pass) -> Iterator[None]:
        with ExitStack() as hooks:
            for path, module in self.module.named_modules():
                if path in self._modules:
                    hooks.enter_context(module.register_forward_hook(_replacing(self._modules[path].change)))
                if path in self._hooked:
                    hooks.enter_context(module.register_forward_pre_hook(watch.enter(path), with_kwargs=True))
                    hooks.enter_context(module.register_forward_hook(watch.leave))
            yield


class _Pass(TorchFunctionMode):
    """One forward pass under a tap."""

    def __init__(self, tap: Tap, whole: bool) -> None:
        super().__init__()
        self.tap, self.whole = tap, whole
        self.views: SiteViews = {name: {} for name in tap._views}
        self.stack: list[list[Any]] = []  # [path, call, operations so far]
        self.calls: dict[str, int] = {}
        self.met = 0
        self.latest: dict[Hashable, Any] = {}

    def enter(self, path: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            call = self.calls.get(path, 0)
            self.calls[path] = call + 1
            self.stack.append([path, call, 0])
            for site in self.tap._inputs.get((path, call), ()):
                self._module_site(site, (args, kwargs))

        return enter

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        path, call, _ = self.stack.pop()
        for site in self.tap._outputs.get((path, call), ()):
            self._module_site(site, output)

    def _module_site(self, site: Site, structure: Any) -> None:
        self.met += 1
        if site.name not in self.views:
            return
        tensors = tensors_in(structure)
        if site.address.operation >= len(tensors):
            raise TapError(
                f"{site.name}: tensor {site.address.operation} of its {site.address.name} was expected; got "
                f"{len(tensors)} in all."
            )
        with torch._C.DisableTorchFunction():
            self._take(site, Look(site, output=tensors[site.address.operation]), before=None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = op.name_of(func)
        if name not in op.WATCHED or not self.stack or not op.is_watched(name, args):
            return func(*args, **kwargs)
        frame = self.stack[-1]
        key = (frame[0], frame[1], frame[2])
        frame[2] += 1
        replaced = self.tap._operations.get(key)
        if replaced is not None:
            func = _exchanged(name, replaced.change)
        sites = self.tap._at.get(key)
        if not sites:
            return func(*args, **kwargs)
        self.met += len(sites)
        for site in sites:
            self._check(site, name)
        if sites[0].role == "attention":
            return self._attention(sites[0], name, func, args, kwargs)
        return self._junction(sites, name, func, args, kwargs)

    def _check(self, site: Site, name: str) -> None:
        if name != site.address.name:
            raise TapError(
                f"{self.tap.anatomy.subject}: at {site.name} the dry run saw {site.address.name!r}, but this pass does"
                f" {name!r}; the model takes another path for these images."
            )

    def _junction(self, sites: list[Site], name: str, func: Any, args: Any, kwargs: Any) -> Any:
        site = sites[0]
        at = site.skip_operand or 0
        skip, branch = args[at], args[1 - at]
        change = None
        for each in sites:
            change = self.tap._changes.get(each.name, change)
            if each.skip_operand is not None:
                self._take(each, Look(each, skip=skip, branch=branch), before=True)
        if change is None:
            total = func(*args, **kwargs)
        else:
            assert isinstance(change, Scale)
            total = _into(name, args, change.combine(skip, branch))
        for each in sites:
            self._take(each, Look(each, output=total), before=False)
        return total

    def _attention(self, site: Site, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        geometry = site.attention
        assert geometry is not None
        if site.name not in self.views and site.name not in self.tap._changes:
            return func(*args, **kwargs)
        attention = attention_in(name, args, kwargs, geometry.operand)
        change = self.tap._changes.get(site.name)
        in_parts = None
        if change is None:
            result = func(*args, **kwargs)

            def weights() -> Tensor:
                return canonical(attention.weights(), geometry.leading)

            if (shape := attention.shape) is not None:

                def in_parts(numbers: int) -> Iterator[Tensor]:
                    for rows in rows_of_images(shape, geometry.leading, numbers):
                        yield canonical(attention.weights(rows), geometry.leading)
        else:
            assert isinstance(change, ReplaceAttention)
            own = attention.weights()
            changed = change.change(canonical(own, geometry.leading))
            result = attention.rebuild(own_layout(changed, geometry.leading, own.shape))

            def weights() -> Tensor:
                return changed

        def values() -> Tensor:
            return canonical(attention.values(), geometry.leading)

        def output() -> Tensor:
            return canonical(attention.output(result), geometry.leading)

        look = Look(site, output=output, weights=weights, weights_in_parts=in_parts, values=values)
        self._take(site, look, before=False)
        return result

    def _take(self, site: Site, look: Look, before: bool | None) -> None:
        look.anatomy, look.kept, look.latest = self.tap.anatomy, self.tap._kept, self.latest
        for view in self.tap._views.get(site.name, ()):
            if before is not None and view.before != before:
                continue
            taken = view.take(look)
            if self.whole and view.reduce is not None:
                taken = view.reduce(taken)
            elif not self.whole:
                taken = taken.cpu()
            # A mere view of the model's tensor would change with its next in-place operation (ResNet's ReLU).
            self.views[site.name][view.name] = taken.clone() if look.shares(taken) else taken

    def finish(self) -> None:
        subject, expected = self.tap.anatomy.subject, len(self.tap.sites)
        if self.met != expected:
            raise TapError(
                f"{subject}: the dry run found {expected} sites, but this pass met {self.met};"
                " the model takes another path for these images."
            )


def _into(name: str, args: Any, value: Tensor) -> Tensor:
    """`x += y` must leave its result in x, which the model goes on using."""
    if name.endswith("_"):
        target: Tensor = args[0]
        if value is not target:
            target.copy_(value)
        return target
    # Returning an operand itself would let a later in-place operation change it under the model's hands.
    return value.clone() if any(value is arg for arg in args) else value


def _exchanged(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    def instead(*args: Any, **_: Any) -> Any:
        return _into(name, args, change(*tensors_in(args)))

    return instead


def _replacing(change: Callable[..., Any]) -> Callable[..., Any]:
    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        with torch._C.DisableTorchFunction():  # what is put in does not count as the model's operations
            return change(args[0])

    return hook


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _site_named(sites_by_name: Mapping[str, Site], name: str, anatomy: Anatomy) -> Site:
    if name not in sites_by_name:
        raise TapError(f"{anatomy.subject} has no site {name!r}; its sites are {', '.join(sites_by_name)}.")
    return sites_by_name[name]


def to_cpu(thing: Any) -> Any:
    return _map(thing, lambda tensor: tensor.cpu())


def join(pieces: Sequence[Any]) -> Any:
    """One structure from those of the micro-batches, tensors joined along the image axis."""
    first = pieces[0]
    if isinstance(first, Tensor):
        return torch.cat(list(pieces)) if first.dim() else first
    if isinstance(first, dict):
        joined = {key: join([piece[key] for piece in pieces]) for key in first}
        return joined if type(first) is dict else type(first)(**joined)
    if isinstance(first, (list, tuple)):
        return _like(first, [join(list(items)) for items in zip(*pieces, strict=True)])
    return first


def _map(thing: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(thing, Tensor):
        return change(thing)
    if isinstance(thing, dict):
        mapped = {key: _map(value, change) for key, value in thing.items()}
        return mapped if type(thing) is dict else type(thing)(**mapped)
    if isinstance(thing, (list, tuple)):
        return _like(thing, [_map(item, change) for item in thing])
    return thing


def _like(thing: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    """A list or tuple of the same kind; a named tuple takes its items one by one."""
    return type(thing)(*items) if hasattr(thing, "_fields") else type(thing)(items)

"""The operations a tap tells apart, by the name torch gives them, and what each does to the origins of its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from eyechart.tracing.positions import contract, position_varies

Function = Callable[..., Any]

_SAME_AS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_",
    "__matmul__": "matmul", "__rmatmul__": "matmul", "bmm": "matmul", "mm": "matmul", "concat": "cat",
    "concatenate": "cat", "divide": "div", "multiply": "mul", "true_divide": "div", "__truediv__": "div",
    "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim",
}  # fmt: skip


def name_of(function: Function) -> str:
    """One name for all spellings of an operation: `a + b`, `a.add(b)` and `torch.add(a, b)` are "add".

    >>> name_of(torch.Tensor.add), name_of(torch.add), name_of(torch.bmm), name_of(torch.Tensor.mT.__get__)
    ('add', 'add', 'matmul', 'mT')
    """
    name: str = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return _SAME_AS.get(name, name)


#: Rearrangements: every number of the result is one of the operand's, so the result *is* the operand to the graph.
SHAPE = {
    "view", "reshape", "view_as", "reshape_as", "permute", "transpose", "t", "T", "mT", "H", "mH", "movedim", "flatten",
    "unflatten", "squeeze", "unsqueeze", "expand", "expand_as", "broadcast_to", "roll", "flip", "rot90", "pad", "tile",
    "repeat", "repeat_interleave", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "transpose_", "squeeze_",
    "unsqueeze_", "flatten_", "atleast_1d", "atleast_2d",
}  # fmt: skip
#: Operations that change neither shape nor values in an evaluation pass.
SAME = {
    "contiguous", "clone", "detach", "detach_", "to", "float", "half", "double", "bfloat16", "type", "type_as", "cuda",
    "cpu", "data", "requires_grad_", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout",
    "alpha_dropout", "dropout_", "alias", "positive", "nan_to_num",
}  # fmt: skip
#: Parts of a tensor.
PART = {
    "__getitem__", "narrow", "select", "index_select", "chunk", "split", "split_with_sizes", "tensor_split", "unbind",
    "gather", "take_along_dim", "unsafe_chunk", "unsafe_split", "diagonal", "hsplit", "vsplit",
}  # fmt: skip
JOIN = {"cat", "stack", "hstack", "vstack", "dstack"}
#: Neighbourhoods laid out side by side; numbers are repeated, so this is a new tensor to the graph.
NEIGHBOURS = {"unfold"}
LINEAR = {"linear"}
CONVOLUTION = {
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "deform_conv2d",
}  # fmt: skip
POOL = {
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "_max_pool2d", "lp_pool2d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d",
}  # fmt: skip
INTERPOLATE = {"interpolate", "upsample", "grid_sample"}
REDUCE = {
    "mean",
    "sum",
    "amax",
    "amin",
    "max",
    "min",
    "var",
    "std",
    "norm",
    "logsumexp",
    "var_mean",
    "nanmean",
    "median",
}
ADD = {"add", "add_"}
PRODUCT = {"matmul", "einsum"}
SOFTMAX = {"softmax"}
FUSED_ATTENTION = "scaled_dot_product_attention"
MODULE_ATTENTION = "multi_head_attention_forward"
#: Linear in their input once the network is in evaluation mode, so a sum of such branches is one convolution.
AFFINE = {"mul", "mul_", "div", "div_", "sub", "sub_", "neg", "batch_norm", "addcmul"}
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
#: They say something about a tensor instead of computing with it.
QUESTIONS = {
    "size", "dim", "shape", "dtype", "device", "numel", "is_contiguous", "stride", "requires_grad", "is_floating_point",
    "__len__", "ndim", "is_cuda", "layout", "element_size", "is_sparse", "storage_offset", "data_ptr", "item", "tolist",
    "is_complex", "get_device", "nelement", "grad", "grad_fn", "is_leaf", "__bool__", "__repr__", "__format__", "names",
    "is_quantized", "is_nested", "is_mkldnn", "is_meta", "is_mps", "is_xpu", "__hash__", "__index__", "__int__",
    "new_zeros", "new_ones", "new_empty", "new_full", "zeros_like", "ones_like", "empty_like", "full_like", "equal",
    "rand_like", "randn_like", "ne", "eq", "gt", "lt", "ge", "le", "isnan", "isinf", "argmax", "argmin", "argsort",
}  # fmt: skip

#: What a tap counts in every pass; an address names the n-th of them in a module's call.
WATCHED = ADD | PRODUCT | {FUSED_ATTENTION, MODULE_ATTENTION}


def is_watched(name: str, args: Sequence[Any]) -> bool:
    """Of the additions, those of two tensors count, whatever their shapes: with one image in the batch, a bias of shape
    (1, …) fits exactly, and the count must not depend on that.
    """
    return name in WATCHED and (name not in ADD or (len(args) > 1 and all(isinstance(arg, Tensor) for arg in args[:2])))


#: Axes that a matrix product only runs along, which may be broadcast; no einsum can use these letters.
LEADING = "αβγδεζηθ"


def operands_of_product(name: str, args: Sequence[Any]) -> tuple[Tensor, Tensor, str, str, str] | None:
    """The two factors of a matrix product and their axes as letters: left, right, result. None for other einsums.

    >>> operands_of_product("matmul", (torch.ones(5, 2, 3), torch.ones(3, 4)))[2:]
    ('αik', 'kj', 'αij')
    """
    if name == "einsum":
        factors = args[1] if isinstance(args[1], (list, tuple)) else args[1:]
        equation = str(args[0]).replace(" ", "")
        if len(factors) != 2 or "..." in equation or "->" not in equation:
            return None
        inputs, result = equation.split("->")
        left, right = inputs.split(",")
        return factors[0], factors[1], left, right, result
    a, b = args[0], args[1]
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.dim() < 2 or b.dim() < 2:
        return None
    leading = LEADING[: max(a.dim(), b.dim()) - 2]
    return (
        a,
        b,
        leading[len(leading) - a.dim() + 2 :] + "ik",
        leading[len(leading) - b.dim() + 2 :] + "kj",
        leading + "ij",
    )


def project(origins: Tensor, letters: str, result: str, shape: Sequence[int]) -> Tensor:
    """Origins of one factor, read along the axes of the product."""
    gone = [axis for axis, letter in enumerate(letters) if letter not in result]
    left = "".join(letter for letter in letters if letter in result)
    kept = contract(origins, gone) if gone else origins
    order = [left.index(letter) for letter in result if letter in left]
    kept = kept.permute(order)
    for axis, letter in enumerate(result):
        if letter not in left:
            kept = kept.unsqueeze(axis)
    return kept.expand(shape)


def replay(name: str, function: Function, args: Sequence[Any], kwargs: dict[str, Any], swap: Function) -> Any:
    """Do to the origins what was done to the tensors; `swap` gives a tensor's origins."""
    if name in ("view", "view_as", "reshape_as"):
        target = args[1].shape if name != "view" else args[1:]
        return swap(args[0]).reshape(*target)
    if name == "pad":
        widths = args[1] if len(args) > 1 else kwargs["pad"]
        mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
        return F.pad(swap(args[0]), widths, mode=mode)
    if name == "repeat_interleave" and isinstance(args[1] if len(args) > 1 else None, Tensor):
        return function(swap(args[0]), *args[1:], **kwargs)
    if name.endswith("_") and not name.endswith("__"):
        return getattr(torch.Tensor, name[:-1])(swap(args[0]), *args[1:], **kwargs)
    exchanged = {key: _exchanged(value, swap) for key, value in kwargs.items()}
    return function(*(_exchanged(arg, swap) for arg in args), **exchanged)


def _exchanged(value: Any, swap: Function) -> Any:
    """Not inside `replay`: a function that calls itself refers to itself, and would keep all origins in memory."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return swap(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        return type(value)(_exchanged(item, swap) for item in value)
    return value


def cut_axis(name: str, args: Sequence[Any], kwargs: dict[str, Any], origins: Tensor) -> tuple[int | None, int | None]:
    """Along which axis a part was taken, preferring one whose positions differ, and from which index on."""
    if name != "__getitem__":
        first = 0 if name in ("unbind", "gather") else 1
        if name in ("chunk", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split"):
            first = 2
        axis = kwargs.get("dim", args[first] if len(args) > first else 0)
        if name == "unbind":
            axis = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        start = args[2] if name in ("narrow", "select") and len(args) > 2 else None
        return (axis, start) if isinstance(axis, int) else (None, None)
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    used = sum(1 for item in index if item is not None and item is not Ellipsis)
    cuts: list[tuple[int, int | None]] = []
    axis = 0
    for item in index:
        if item is None:
            continue
        if item is Ellipsis:
            axis += origins.dim() - used
            continue
        if isinstance(item, slice):
            start, stop, step = item.indices(origins.shape[axis])
            if len(range(start, stop, step)) < origins.shape[axis]:
                cuts.append((axis, start))
        elif isinstance(item, int):
            cuts.append((axis, item % origins.shape[axis]))
        else:
            cuts.append((axis, None))
        axis += 1
    for cut in cuts:
        if position_varies(origins, cut[0]):
            return cut
    return cuts[0] if cuts else (None, None)


def reduced_axes(name: str, args: Sequence[Any], kwargs: dict[str, Any], dims: int) -> list[int]:
    """The axes a reduction sums over; all of them if it names none."""
    at = 2 if name == "norm" else 1
    axes = kwargs.get("dim", args[at] if len(args) > at else None)
    if axes is None or isinstance(axes, Tensor):
        return list(range(dims))
    return [axes] if isinstance(axes, int) else list(axes) or list(range(dims))

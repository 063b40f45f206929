"""Sets of torch functions that the tape treats specially: queries of metadata, functions that let memory escape, …"""

from __future__ import annotations

import builtins
import keyword
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.torch_state import internals

_GETTERS = (
    "shape dtype device ndim is_cuda is_cpu requires_grad is_leaf layout is_sparse is_quantized is_nested is_meta "
    "itemsize nbytes is_mps is_xpu is_mkldnn is_sparse_csr is_mtia is_ipu is_maia is_vulkan is_xla names _version "
    "output_nr grad_fn retains_grad name"
).split()
_QUERIES = (
    "size dim ndimension numel nelement stride is_floating_point is_contiguous element_size __len__ get_device "
    "is_complex is_signed storage_offset is_conj is_neg is_same_size _is_view is_set_to"
).split()


def _metadata_functions() -> frozenset[Any]:
    """Return the functions that only ask for metadata: they are answered, not noted."""
    functions: set[Any] = {torch.numel, torch.is_floating_point, torch.is_complex, torch.get_default_dtype}
    functions |= {torch.result_type, torch.finfo, torch.iinfo, torch.is_tensor, internals.set_grad_enabled}
    for name in _GETTERS:
        getter = getattr(getattr(Tensor, name, None), "__get__", None)
        if getter is not None:
            functions.add(getter)
    profiler = torch.ops.profiler  # marks that a profiler reads: they compute nothing
    for name in ("_record_function_enter", "_record_function_enter_new", "_record_function_exit"):
        packet = getattr(profiler, name, None)
        if packet is not None:
            functions |= {packet, *(getattr(packet, overload) for overload in packet.overloads())}
    for name in _QUERIES:
        functions |= {getattr(owner, name) for owner in (Tensor, torch) if hasattr(owner, name)}
    return frozenset(functions)


METADATA = _metadata_functions()


# After these, memory can change without a new version: a body that calls one is shown as it was recorded.
UNTRACKED_WRITES = frozenset(
    (
        "numpy __array__ data_ptr __dlpack__ untyped_storage storage _typed_storage set_ share_memory_ __deepcopy__ "
        "map_ map2_ apply_ register_hook backward __set__ from_numpy as_subclass _make_subclass"
    ).split()
)
ATTENTION = frozenset(("scaled_dot_product_attention", "multi_head_attention_forward"))  # torch chooses their kernel
NORMS = frozenset(("batch_norm", "instance_norm"))


# These give a tensor another memory, of which parts have no content: each later value is measured.
RESIZING = frozenset(("resize_", "resize_as_"))


# The memory of their results may not be torch's own. (No mode sees ``from_numpy``, ``frombuffer`` and dlpack.)
SHARE_FOREIGN_MEMORY = frozenset(("as_tensor", "asarray"))
_DATA: Any = Tensor.data  # gives the same memory with a version counter of its own
_HARMLESS = frozenset(("register_hook", "backward", "__deepcopy__"))
NUMEL = (Tensor.numel, Tensor.nelement, torch.numel)


# Hooks on a tensor's gradient: a placeholder does not have them.
GRADIENT_HOOKS = frozenset(
    getattr(Tensor, name).__get__ for name in ("_backward_hooks", "_post_accumulate_grad_hooks", "retains_grad")
)


# Queries of memory layout: for some results (``roll``, ``channel_shuffle``) torch's fake tensors answer differently.
LAYOUT = frozenset((Tensor.stride, Tensor.is_contiguous, Tensor.storage_offset))


# Queries that a tensor without memory and history cannot answer.
UNANSWERABLE = GRADIENT_HOOKS | frozenset(
    [getattr(Tensor, name).__get__ for name in ("grad_fn", "is_leaf", "output_nr", "_base", "grad")]
    + [Tensor.storage_offset, Tensor._is_view]
    + [Tensor.is_conj, torch.is_conj, Tensor.is_neg, torch.is_neg]
)


# These work on a level of forward-mode gradients that is open only while its block runs.
FORWARD_AD = frozenset(("_make_dual", "_unpack_dual"))


def shares_memory(function: Any, name: str) -> bool:
    """May a function's arguments be written to or moved, once it has run, without a new version?"""
    if name == "__get__" or name == "__set__":
        return bool(getattr(function, "__self__", None) is _DATA)
    return name in RESIZING or (name in UNTRACKED_WRITES and name not in _HARMLESS)


def written_form(function: Any) -> str:
    """Return a function as a user writes it: ``numpy()``, or ``data = …`` for an attribute that is set."""
    name = str(function.__name__)
    attribute = getattr(getattr(function, "__self__", None), "__name__", name)
    return f"{attribute} = …" if name == "__set__" else f"{name}()"


def op_name(function: Any) -> str:
    """Return the name of an operation, as in the graphs: ``softmax``; ``add`` for ``x + y``."""
    return function_name(function).strip("_")


def node_name(op: str, before: int) -> str:
    """Return the name of an operation's node in a graph, with ``before`` operations of its name in the same call.

    >>> node_name("mul", 0), node_name("mul", 1), node_name("sum", 0)
    ('mul', 'mul_1', 'sum_1')
    """
    number = before + (hasattr(builtins, op) or keyword.iskeyword(op))  # torch.fx leaves Python's own names alone
    return f"{op}_{number}" if number else op


def function_name(function: Any) -> str:
    """Return the short name of a torch function: of a property, the property's."""
    name = str(getattr(function, "__name__", type(function).__name__))
    if name in ("__get__", "__set__", "__delete__"):
        return str(getattr(getattr(function, "__self__", None), "__name__", name))
    return name


_WRITING_METHODS = frozenset(
    f"__{name}__"
    for name in "setitem set iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split()
)


def may_write(function: Any, kwargs: Any) -> bool:
    """May an operation write to its operands: by its name (``add_``, ``x += 1``, ``x[0] = 1``), or with ``out=``?"""
    name = str(getattr(function, "__name__", ""))
    if name.startswith("__"):
        return name in _WRITING_METHODS
    return name.endswith("_") or (kwargs is not None and "out" in kwargs)


def running_statistics(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments that one of ``NORMS``, in training, writes to without a new version.

    Functions of ``torch.nn.functional`` have them after the input, those of ``torch`` after weight and bias.
    """
    flag, default = ("training", False) if function.__name__ == "batch_norm" else ("use_input_stats", True)
    if not (args[5] if len(args) > 5 else kwargs.get(flag, default)):
        return ()
    first = 1 if hasattr(function, "__code__") else 3
    written = (*args[first : first + 2], kwargs.get("running_mean"), kwargs.get("running_var"))
    return tuple([argument for argument in written if argument is not None])

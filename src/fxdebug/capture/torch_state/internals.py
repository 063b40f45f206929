"""Private names of torch and Python that capturing uses: the purpose of each, and the loss without it.

Such names come and go between versions. Importing this file looks up each of them once. A missing name has a
substitute here; if a run loses something by that, :func:`notes` says what. Other files import the names from here, as
torch calls them, without the underscore in front.

Names that every torch since 1.0 has (``nn.Module._parameters``, ``Tensor._version``, …) are looked up and listed as
well, but used directly.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])

Loss = Literal["nothing", "a detail", "verification", "graphs"]
"""The loss of a run without a name: nothing (the substitute does the same), a detail, verification, all graphs."""


@dataclass(frozen=True)
class Internal:
    """A private name, and whether this torch has it."""

    name: str
    use: str
    loses: Loss
    without: str  # the loss in words, for a note; empty if there is none
    is_there: bool


LISTED: dict[str, Internal] = {}
"""Every private name, in the order of look-up."""
_MISSING = object()


def _look_up(name: str, use: str, instead: Any, loses: Loss = "nothing", without: str = "") -> Any:
    """Return the object called ``name`` (``module:attribute``); if there is none, the substitute ``instead``."""
    home, _, path = name.partition(":")
    name = name.replace(":", ".")
    try:
        value = operator.attrgetter(path)(importlib.import_module(home))
    except (AttributeError, ImportError):
        value = _MISSING
    LISTED[name] = Internal(name, use, loses, without, value is not _MISSING)
    return instead if value is _MISSING else value


def missing_for(loss: Loss) -> str | None:
    """Return, in words, a missing name that causes this loss; ``None`` if none does."""
    lost = next((entry for entry in LISTED.values() if entry.loses == loss and not entry.is_there), None)
    return None if lost is None else f"{_version_of(lost)} has no {lost.name}"


def notes(*, graph: bool = True) -> list[str]:
    """Return the losses of a run, with a graph or without one, as texts: one for each missing name that causes one."""
    lost = [entry for entry in LISTED.values() if entry.without and not entry.is_there]
    lost = [entry for entry in lost if graph or entry.loses == "a detail"]
    return [f"{_version_of(entry)} has no {entry.name}: {entry.without}" for entry in lost]


def _version_of(entry: Internal) -> str:
    return f"torch {torch.__version__}" if entry.name.startswith("torch.") else f"Python {sys.version.split()[0]}"


def _none(*args: Any, **kwargs: Any) -> None:
    """Do nothing: the substitute for a function that reads or sets state this torch does not have."""


def _zero() -> int:
    return 0


def _false(*args: Any) -> bool:
    return False


def _true() -> bool:
    return True


def _itself(obj: Any) -> Any:
    return obj


def _no_graphs(name: str, use: str, instead: Any = _none) -> Any:
    return _look_up(name, use, instead, "graphs", "no graphs are recorded")


def _unverified(name: str, use: str, instead: Any = _none) -> Any:
    return _look_up(name, use, instead, "verification", "graphs are recorded, and none is verified")


def _detail(name: str, use: str, instead: Any, without: str) -> Any:
    return _look_up(name, use, instead, "a detail", without)


# Torch function modes: one of them records tapes -----------------------------------------------------

len_torch_function_stack: Callable[[], int] = _no_graphs(
    "torch._C:_len_torch_function_stack", "how many modes are on in this thread", _zero
)
push_on_torch_function_stack = _no_graphs("torch._C:_push_on_torch_function_stack", "lay the tape on")
pop_torch_function_stack = _no_graphs("torch._C:_pop_torch_function_stack", "take the tape off, from under others")
get_function_stack_at = _no_graphs("torch._C:_get_function_stack_at", "is the tape on, and which modes besides it")
DisableTorchFunction: Any = _no_graphs(
    "torch._C:DisableTorchFunction", "what fxdebug asks of tensors is on no tape", contextlib.nullcontext
)
DeviceContext: type = _look_up(
    "torch.utils._device:DeviceContext",
    "the mode of ``with torch.device``: its device is among the arguments",
    type(None),
)


def _without_torch_function(function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    with DisableTorchFunction():
        return function(*args, **(kwargs or {}))


disabled_torch_function_impl = _look_up(
    "torch._C:_disabled_torch_function_impl", "a subclass of Tensor that is handled like one", _without_torch_function
)


# Torch dispatch modes, and torch's own tracers -------------------------------------------------------

len_torch_dispatch_stack: Callable[[], int] = _unverified(
    "torch._C:_len_torch_dispatch_stack", "is any mode on in this thread", _zero
)
get_dispatch_stack_at = _unverified("torch._C:_get_dispatch_stack_at", "which modes may change what is computed")
TorchDispatchMode: Any = _unverified(
    "torch.utils._python_dispatch:TorchDispatchMode",
    "what a body writes past the tape is not written twice",
    contextlib.nullcontext,
)
HigherOrderOperator: Any = _look_up(
    "torch._ops:HigherOrderOperator", "control flow as in torch.cond is told as one operation", ()
)
disable_current_modes = _detail(
    "torch.utils._python_dispatch:_disable_current_modes",
    "what fxdebug asks of tensors is hidden from modes",
    contextlib.nullcontext,
    "the program's dispatch modes see what fxdebug asks of tensors",
)
_AS_A_RUN = "what make_fx and torch.export trace is recorded as if it ran"
get_dispatch_mode = _detail("torch._C:_get_dispatch_mode", "does torch trace with proxies", _none, _AS_A_RUN)
get_dispatch_mode_pre_dispatch = _detail(
    "torch._ops:_get_dispatch_mode_pre_dispatch", "does torch trace with proxies, early", _none, _AS_A_RUN
)
dispatch_tls_is_dispatch_key_included: Callable[[Any], bool] = _detail(
    "torch._C:_dispatch_tls_is_dispatch_key_included", "may torch be tracing with proxies, early", _false, _AS_A_RUN
)
PRE_DISPATCH = _detail("torch._C:DispatchKey.PreDispatch", "the key of early tracing", None, _AS_A_RUN)
PROXY = _detail("torch._C:_TorchDispatchModeKey.PROXY", "the key of tracing with proxies", None, _AS_A_RUN)
if PRE_DISPATCH is None:
    dispatch_tls_is_dispatch_key_included = _false
if PROXY is None:
    get_dispatch_mode = get_dispatch_mode_pre_dispatch = _none
is_exporting: Callable[[], bool] = _look_up("torch.compiler:is_exporting", "does torch.export run, from 2.7 on", _false)
is_tracing: Callable[[], bool] = _look_up("torch._C:_is_tracing", "does torch.jit.trace run", torch.jit.is_tracing)
_SEEN_BY_JIT = "torch.jit.trace notes what fxdebug asks of tensors"
get_tracing_state = _detail("torch._C:_get_tracing_state", "torch.jit.trace is halted", _none, _SEEN_BY_JIT)
set_tracing_state = _detail("torch._C:_set_tracing_state", "torch.jit.trace goes on", _none, _SEEN_BY_JIT)


# Functorch ------------------------------------------------------------------------------------------

_IN_TRANSFORMS = "tensors inside vmap, grad and the like are described as ordinary ones"
functorch_level = _detail(
    "torch._C:_functorch.peek_interpreter_stack", "is a transform (vmap, grad, …) on", _none, _IN_TRANSFORMS
)
DisableFuncTorch: Any = _detail(
    "torch._C:_DisableFuncTorch",
    "what fxdebug asks of tensors is not transformed",
    contextlib.nullcontext,
    _IN_TRANSFORMS,
)
is_functorch_wrapped_tensor: Callable[[Any], bool] = _detail(
    "torch._C:_functorch.is_functorch_wrapped_tensor", "does a transform wrap it", _false, _IN_TRANSFORMS
)
get_unwrapped = _detail("torch._C:_functorch.get_unwrapped", "what a transform wraps", _itself, _IN_TRANSFORMS)
is_batchedtensor = _detail("torch._C:_functorch.is_batchedtensor", "is it vmap's", _false, _IN_TRANSFORMS)
maybe_get_bdim = _detail("torch._C:_functorch.maybe_get_bdim", "which dimension vmap takes away", _none, _IN_TRANSFORMS)


# Gradients, autocast, dynamo -------------------------------------------------------------------------

set_grad_enabled = _look_up("torch._C:_set_grad_enabled", "as torch.no_grad does it", torch.set_grad_enabled)
is_any_autocast_enabled: Callable[[], bool] = _look_up(
    "torch._C:_is_any_autocast_enabled", "is autocast on, in one question for all devices", _true
)
_COMPILES_OURS = "torch.compile may compile code of fxdebug's along with the program's"
eval_frame_callback: Callable[[], object] = _detail(
    "torch._C:_dynamo.eval_frame.get_eval_frame_callback", "does dynamo look at frames here", _none, _COMPILES_OURS
)
_set_code_exec_strategy = _look_up(
    "torch._C:_dynamo.eval_frame.set_code_exec_strategy", "see ``keep_dynamo_off``", None
)
_skip_code = None
if _set_code_exec_strategy is None:
    _skip_code = _detail("torch._C:_dynamo.eval_frame.skip_code", "the same, in torch 2.6", None, _COMPILES_OURS)


def keep_dynamo_off(code: CodeType, *, inside: bool = False) -> None:
    """Make dynamo, which looks at every frame in a compiled region, skip the frames of this code.

    ``inside``: and all frames that they call.
    """
    if _set_code_exec_strategy is not None:
        frames = torch._C._dynamo.eval_frame
        action = frames._FrameAction.SKIP if inside else frames._FrameAction.DEFAULT
        _set_code_exec_strategy(code, frames._FrameExecStrategy(frames._FrameAction.SKIP, action))
    elif _skip_code is not None:
        _skip_code(code)


def not_compiled(function: _Function) -> _Function:
    """Run a function and everything it calls uncompiled, even if ``torch.compile`` compiles the function around it.

    >>> @not_compiled
    ... def twice(x): return x * 2
    >>> twice(3)
    6
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # dynamo calls it, and does not look into it
    keep_dynamo_off(function.__code__, inside=True)  # type: ignore[attr-defined]
    return function


COMPILED = "torch._dynamo.eval_frame"
"""The module whose ``_maybe_set_eval_frame`` is called around each compiled region; torch imports it to compile."""
COMPILES_NOTHING = "torch._dynamo.backends.debugging"
"""The module of the backend ``eager``, which compiles nothing."""
WRAPPED = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")
"""The attribute of dynamo's callbacks that holds the one inside, innermost the backend; torch 2.8 has another name."""
OPTIMIZED = "torch._dynamo"
"""The module of ``OptimizedModule``, the class of the modules that ``torch.compile`` returns."""


def announces_regions(dynamo: Any) -> bool:
    """Does ``dynamo``, the module :data:`COMPILED`, announce compiled regions? If not, no tape has entries for them."""
    return callable(getattr(dynamo, "_maybe_set_eval_frame", None))


# State of a thread that is taken along into another one: see ``carried_state`` ------------------------

_NOT_TAKEN = "a forward that is paused runs without what its caller has set for its own thread"
_saved_tensors = _detail(
    "torch._C:_autograd._top_saved_tensors_default_hooks", "the hooks on saved tensors", _none, _NOT_TAKEN
)
push_saved_tensors_hooks = _detail(
    "torch._C:_autograd._push_saved_tensors_default_hooks", "the same hooks in another thread", _none, _NOT_TAKEN
)
pop_saved_tensors_hooks = _detail(
    "torch._C:_autograd._pop_saved_tensors_default_hooks", "and taken off there", _none, _NOT_TAKEN
)
push_dispatch_mode = _detail(
    "torch.utils._python_dispatch:_push_mode", "dispatch modes in another thread", _none, _NOT_TAKEN
)
pop_dispatch_mode = _detail("torch.utils._python_dispatch:_pop_mode", "and taken off there", _none, _NOT_TAKEN)
is_multithreading_enabled: Callable[[], bool] = _look_up(
    "torch._C:_is_multithreading_enabled", "does backward use threads", _true
)
set_multithreading_enabled = _look_up("torch._C:_set_multithreading_enabled", "the same in another thread", _none)
_device_contexts = _detail(
    "torch:_GLOBAL_DEVICE_CONTEXT", "the default device of a thread", threading.local(), _NOT_TAKEN
)


def top_saved_tensors_hooks() -> Any:
    """Return the pair of hooks on the tensors that autograd saves in this thread; ``None`` if there is none."""
    return _saved_tensors(True)


def default_device_context() -> Any:
    """Return what ``torch.set_default_device`` has set in this thread."""
    return getattr(_device_contexts, "device_context", None)


def set_default_device_context(context: Any) -> None:
    """Set what :func:`default_device_context` returned in another thread; its mode is put on with the others."""
    if context is not None:
        _device_contexts.device_context = context


# Fake tensors: looked up when they are needed, as importing them takes a while ------------------------

FAKE_TENSORS = "torch._subclasses.fake_tensor"


@functools.cache
def fake_tensors() -> tuple[Any, Any]:
    """Return ``FakeTensor`` and ``FakeTensorMode``, with which a graph is tried on inputs of other sizes."""
    module = importlib.import_module(FAKE_TENSORS)
    return module.FakeTensor, module.FakeTensorMode


def is_fake(tensor: torch.Tensor) -> bool:
    """Is it a tensor of ``FakeTensorMode``, which has metadata and no memory?"""
    kind = getattr(sys.modules.get(FAKE_TENSORS), "FakeTensor", None)
    return kind is not None and isinstance(tensor, kind)


# Who owns a tensor -----------------------------------------------------------------------------------


def _is_counted() -> bool:
    """Does a reference from C++ count as one of Python's? Tried with a view, which refers to its base."""
    with DisableTorchFunction(), disable_current_modes(), torch.inference_mode(False):
        base = torch.empty(0, device="cpu")
        before = sys.getrefcount(base)
        view = base.view(-1)
        return view is not base and sys.getrefcount(base) > before


IS_COUNTED = _is_counted()
"""Does C++ hold a tensor's Python object by a counted reference? Not in torch 2.6: see ``WeakTensor``."""


# WeakTensor: a weak reference to a tensor or a storage. Newer torch holds the Python object of a tensor by a counted
# reference, and ``weakref.ref`` suffices. Older torch lets C++ own the Python object once Python has dropped its last
# reference ("resurrection"); a plain weak reference then returns an object whose memory goes when C++ lets go of it.
if TYPE_CHECKING or IS_COUNTED:
    WeakTensor = weakref.ref
else:

    class WeakTensor(weakref.ref):
        """A weak reference to a tensor or a storage whose Python object only C++ may hold.

        Called, it gives the ownership of the Python object back to Python (``_fix_weakref``, as
        ``torch.utils.weak`` does): otherwise the object would lose its memory when C++ lets go of it.
        """

        __slots__ = ()

        def __call__(self) -> Any:
            obj = weakref.ref.__call__(self)
            if obj is not None:
                obj._fix_weakref()
            return obj


# Structures ------------------------------------------------------------------------------------------


def _tree_leaves(tree: Any) -> list[Any]:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else None
    return [tree] if inner is None else [leaf for each in inner for leaf in _tree_leaves(each)]


def _tree_map(function: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    if is_leaf is not None and is_leaf(tree):
        return function(tree)
    if isinstance(tree, dict):
        return {key: _tree_map(function, each, is_leaf) for key, each in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)([_tree_map(function, each, is_leaf) for each in tree])
    return function(tree)


tree_leaves: Callable[[Any], list[Any]] = _look_up(
    "torch.utils._pytree:tree_leaves", "the tensors in lists, tuples and dicts", _tree_leaves
)
tree_map: Callable[..., Any] = _look_up(
    "torch.utils._pytree:tree_map", "lists, tuples and dicts with other tensors", _tree_map
)


# Settings that are read or restored, and other names -------------------------------------------------

neg_view = _look_up("torch:_neg_view", "a negated view, to copy what is negative when it is read", torch.neg)


class _NoOptions:
    """Stands for torch's print options where they cannot be read."""


PRINT_OPTS: object = _look_up(
    "torch._tensor_str:PRINT_OPTS", "print options that a body sets are put back", _NoOptions()
)


# Settings that decide how torch computes (``torch._C._set_…``). Each version has others.
AttentionKernels = tuple[bool, ...]
_KERNELS = [
    name
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    if hasattr(torch._C, f"_get_{name}_sdp_enabled") and hasattr(torch._C, f"_set_sdp_use_{name}")
]
_ask_for_kernel = [getattr(torch._C, f"_get_{name}_sdp_enabled") for name in _KERNELS]
_set_kernel = [getattr(torch._C, f"_set_sdp_use_{name}") for name in _KERNELS]


def attention_kernels() -> AttentionKernels:
    """Return which kernels torch may choose from for attention, as ``torch.nn.attention.sdpa_kernel`` sets them."""
    return tuple([ask() for ask in _ask_for_kernel])


def set_attention_kernels(kernels: AttentionKernels) -> None:
    """Set what :func:`attention_kernels` returns."""
    for put, on in zip(_set_kernel, kernels):
        put(on)


_SETTINGS = (
    "default_dtype default_tensor_type deterministic_algorithms deterministic_fill_uninitialized_memory "
    "float32_matmul_precision fp32_precision_setter cpu_allow_fp16_reduced_precision_reduction "
    "mkldnn_deterministic mkldnn_enabled onednn_allow_tf32 nnpack_enabled qengine blas_preferred_backend "
    "linalg_preferred_backend cudnn_allow_tf32 cudnn_benchmark cudnn_deterministic cudnn_enabled "
    "cublas_allow_tf32 cublas_allow_fp16_accumulation cublas_allow_fp16_reduced_precision_reduction "
    "cublas_allow_bf16_reduced_precision_reduction sdp_priority_order sdp_use_fa3 "
    "math_sdp_allow_fp16_bf16_reduction warnAlways"
).split()
_PUBLIC_SETTINGS = "set_num_threads set_flush_denormal set_anomaly_enabled".split()


def settings() -> list[tuple[Any, str]]:
    """Return (owner, name) of each function of this torch that changes how operations compute."""
    named = [(torch._C, f"_set_{name}") for name in _SETTINGS]
    named += [(owner, name) for owner in (torch, torch._C) for name in _PUBLIC_SETTINGS]
    return [(owner, name) for owner, name in named if hasattr(owner, name)]


_keyset_after = _detail(
    "torch._C:_dispatch_keyset_full_after",
    "what comes behind our kernel of a collective",
    None,
    "what a collective writes into a tensor is not seen",
)


def keyset_after(key: str) -> Any:
    """Return the dispatch keys behind one; ``None`` where this torch does not tell."""
    return None if _keyset_after is None else _keyset_after(getattr(torch._C.DispatchKey, key))


def c10d() -> Any:
    """Return the C++ module of ``torch.distributed``, whose communication is refused while a forward is run again."""
    from torch._C import _distributed_c10d

    return _distributed_c10d


def wait_tensor(tensor: Any) -> None:
    """Wait until a functional collective has written its result."""
    torch.ops._c10d_functional.wait_tensor(tensor)


DataLoaderIter: type = _look_up(
    "torch.utils.data.dataloader:_BaseDataLoaderIter",
    "how long a training waits for its batches",
    type("None_", (), {}),
)


# Python's own ----------------------------------------------------------------------------------------

STARTS_THREADS = tuple(
    [name for name in ("_start_new_thread", "_start_joinable_thread") if hasattr(threading, name)]  # 3.12, 3.13
)
"""The names in ``threading`` of the functions that start a thread."""


# Names that are used directly: every torch has them, and no run works without them --------------------

for _name, _use in (
    ("torch:Tensor._version", "was a tensor written to"),
    ("torch:Tensor._base", "whose memory a view shows"),
    ("torch:Tensor._is_view", "does it show another tensor's memory"),
    ("torch:UntypedStorage._cdata", "which memory a tensor lies in"),
    ("torch:nn.Module._call_impl", "its code tells of modules that no parent has, and of hooks"),
    ("torch:nn.Module._wrapped_call_impl", "frames of it are no line of the user's"),
    ("torch.nn.modules.module:_global_forward_hooks", "hooks on every module"),
    ("torch.nn.modules.module:_global_forward_pre_hooks", "hooks on every module"),
    ("torch.nn.modules.module:_global_backward_hooks", "hooks on every module"),
    ("torch.nn.modules.module:_global_backward_pre_hooks", "hooks on every module"),
    ("torch.autograd.forward_ad:_current_level", "is forward-mode differentiation on"),
    ("sys:_getframe", "the line an operation comes from"),
):
    _look_up(_name, _use, None, "graphs", "runs may fail")

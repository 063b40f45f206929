"""Run a model beside its twin in a wider dtype, and measure the error of each operation.

Both run the same code, so their operations are paired by call and position. The twin is a deep copy whose parameters,
buffers and inputs are widened; narrow dtypes that its code asks for (``x.float()``, ``dtype=torch.float32``) are
widened, too. The user's model is copied, never run.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.probe import ObservedRun, deep_copy, internals, members, named_tensors, state_restored, untracked
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError, first_line
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.stats.doubles import where_doubles

Key = tuple[int, int]  # call, position on its tape; position -1: the call's result
_NARROWING = {Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double}


# Elements at or below this share of the dtype's lowest number are masks: the two dtypes differ in their lowest number.
_MASK = 0.5


@dataclass
class Errors:
    """Relative errors of the native run: of operations by (call, node of its graph), of results by call."""

    of_nodes: dict[tuple[int, str], float] = field(default_factory=dict)
    of_calls: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class _NativeResults:
    """Keeps a copy of every floating result of the native run, up to ``budget`` bytes."""

    def __init__(self, budget: int) -> None:
        self.results: dict[Key, tuple[str, list[Tensor]]] = {}
        self.left_out = 0
        self._budget = budget

    def look(self, key: Key, name: str, result: Any) -> None:
        """Keep a copy of a result."""
        with untracked():
            tensors = _measurable_in(result)
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            if size > self._budget:
                self.left_out += 1
            elif tensors:
                self._budget -= size
                self.results[key] = name, [tensor.detach().clone() for tensor in tensors]


class _TwinErrors:
    """Compares every result of the twin with the copy of the native one."""

    def __init__(self, kept: _NativeResults) -> None:
        self.errors: dict[Key, float] = {}
        self.diverged: dict[int, int] = {}  # call → the position from which its operations differ
        self._kept = kept

    def look(self, key: Key, name: str, result: Any) -> None:
        """Measure the error of a result."""
        native = self._kept.results.pop(key, None)
        if native is None or key[0] in self.diverged:
            return
        with untracked():
            twins = _measurable_in(result)
            fits = native[0] == name and [a.shape for a in native[1]] == [b.shape for b in twins]
            if not fits:
                self.diverged[key[0]] = key[1]
                return
            errors = [relative_error(a, b) for a, b in zip(native[1], twins)]
        self.errors[key] = max(errors, default=0.0)


def relative_error(native: Tensor, twin: Tensor) -> float:
    """Return the norm of the difference over the norm of the twin, over elements finite in both and not masked.

    It is infinite if some element is finite in the twin but not in the native run.

    >>> relative_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0], dtype=torch.float64))
    0.0
    """
    lowest = _MASK * torch.finfo(native.dtype).min
    wide = torch.complex128 if twin.is_complex() else torch.float64
    a, b = where_doubles(native).to(wide), where_doubles(twin).to(wide)
    known = torch.isfinite(a) & torch.isfinite(b)
    lost = torch.isfinite(b) & ~torch.isfinite(a)  # an overflow, or NaN
    if not a.is_complex():
        known &= (a > lowest) & (b > lowest)
        lost &= (b > lowest) & ~(a == -torch.inf)  # masks
    if lost.any():
        return math.inf
    a, b = a[known], b[known]
    difference, size = float(torch.linalg.vector_norm(a - b)), float(torch.linalg.vector_norm(b))
    return difference / size if size else float(difference > 0)


def _measurable_in(result: Any) -> list[Tensor]:
    return [tensor for _, tensor in named_tensors(result) if _measurable(tensor)]


def _measurable(tensor: Tensor) -> bool:
    plain = tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized and not tensor.is_nested
    return plain and (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel() > 0


# The twin ----------------------------------------------------------------------------------------


class _WideDtypes(TorchFunctionMode):
    """A mode that replaces each floating dtype that the code asks for with the wide one."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _NARROWING:
            return args[0].to(self._dtype)
        args = tuple([self._wide(arg) for arg in args])
        return func(*args, **{name: self._wide(arg) for name, arg in (kwargs or {}).items()})

    def _wide(self, thing: Any) -> Any:
        if type(thing) is not torch.dtype or not (thing.is_floating_point or thing.is_complex):
            return thing
        return self._dtype.to_complex() if thing.is_complex else self._dtype


@contextlib.contextmanager
def _wide_defaults(dtype: torch.dtype) -> Iterator[None]:
    """Make new tensors wide and switch autocast off, for a block."""
    before = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        torch.set_default_dtype(dtype)
        stack.callback(torch.set_default_dtype, before)
        stack.enter_context(_WideDtypes(dtype))
        yield


def widened(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a copy with all floating tensors in ``dtype``: parameters, buffers, and plain attributes."""
    twin = copied_model(model)
    for module in members.modules_of(twin):
        nn.Module._apply(module, lambda tensor: _cast(tensor, dtype), recurse=False)
        for name, thing in list(vars(module).items()):
            if type(thing) is Tensor:
                vars(module)[name] = _cast(thing, dtype)
    return twin


def copied_model(model: nn.Module) -> nn.Module:
    """Return a deep copy of a model whose weights are there."""
    for name, tensor in (*members.named_parameters_of(model), *members.named_buffers_of(model)):
        if tensor.layout is torch.strided and is_freed(tensor):
            raise UsageError(f"{name} of {type(model).__name__} has given its memory back: gather the weights first")
    return deep_copy(model, strict=True)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.is_complex():
        return tensor.to(dtype.to_complex())
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def copied(inputs: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a copy of inputs that a run may write to: tensors cloned (and cast, if floating), the rest deep-copied."""

    def copied_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return copy.deepcopy(leaf)
        clone = leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return clone if dtype is None else _cast(clone, dtype)

    return internals.tree_map(copied_leaf, inputs)


def twin_runs(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dtype: torch.dtype,
    settings: Mapping[str, Any],
    budget: int,
) -> tuple[TraceData, Errors]:
    """Run a copy of the model and its twin with the same random numbers; return the native trace and its errors.

    Raises ``UsageError`` if the model cannot be copied or its twin cannot run. Exceptions of the native run pass.
    """
    try:
        native, twin = copied_model(model), widened(model, dtype)
    except Exception as error:
        raise UsageError(f"{type(model).__name__} cannot be copied: {type(error).__name__}: {error}") from error
    kept = _NativeResults(budget)
    with state_restored():
        args_copy, kwargs_copy = copied((args, dict(kwargs)))
        run = ObservedRun(native, args_copy, kwargs_copy, settings, kept.look)
    if run.raised is not None:
        raise run.raised
    compared = _TwinErrors(kept)
    with state_restored(), _wide_defaults(dtype):
        args_copy, kwargs_copy = copied((args, dict(kwargs)), dtype)
        raised = ObservedRun(twin, args_copy, kwargs_copy, settings, compared.look, weights=False).raised
    if raised is not None:
        if not isinstance(raised, Exception):  # Ctrl-C or an exit
            raise raised
        what = f"the {str(dtype)[6:]} twin of {type(model).__name__} cannot run"
        raise UsageError(f"{what}: {type(raised).__name__}: {first_line(raised)}") from raised
    return run.trace, _by_node(run, kept, compared)


def _by_node(run: ObservedRun, kept: _NativeResults, compared: _TwinErrors) -> Errors:
    """Return the errors by graph node; they were collected by position on the tape."""
    errors, trace = Errors(), run.trace
    for call in trace.calls:
        own = run.place(call)
        if own in compared.errors:
            errors.of_calls[call.index] = compared.errors[own]
        for node, place in run.nodes(call).items():
            if place in compared.errors:
                errors.of_nodes[call.index, node] = compared.errors[place]
    for index, position in compared.diverged.items():
        call, where = run.call((index, position)), f"from operation {position} on" if position >= 0 else "in its result"
        errors.notes.append(f"{call.id or trace.model}: the twin did something else {where}: a branch on a value")
    if kept.left_out:
        errors.notes.append(f"{kept.left_out} results were not compared: there was no more room (budget=…)")
    return errors

"""``edit``: run a model once unchanged and once with edits of inputs and results; compare both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch import Tensor, nn

from fxdebug.api.compare_runs import compare
from fxdebug.api.comparison import Comparison
from fxdebug.api.run_model import run_and_store
from fxdebug.api.trace import Trace
from fxdebug.capture.probe import deep_copy, internals, state_restored
from fxdebug.capture.probe import edits as run_edits
from fxdebug.data.calls import Note
from fxdebug.data.trace import replaced
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.features.edit.changes import constant_like, slot_of, without_heads
from fxdebug.features.edit.recorded_values import model_of, recorded_inputs, value_at
from fxdebug.query.names import shown_ids


@dataclass(frozen=True)
class Ablation:
    """An edit that sets what a call or operation returns, or some heads of an attention: see :func:`ablate`."""

    heads: tuple[int, ...] | None
    to: float | str


@dataclass(frozen=True)
class Patch:
    """An edit that takes a value from another run: see :func:`patch`."""

    source: Trace
    place: str | None
    index: Any


Edited: TypeAlias = "Callable[[Any], Any] | Tensor | float | Ablation | Patch"


def ablate(*, heads: int | Sequence[int] | None = None, to: float | str = 0.0) -> Ablation:
    """Return an edit that sets a result to a number, or with ``to="mean"`` to its mean over all but the last dimension.

    With ``heads``, it is for a call in which an attention is computed, and only these heads are set: the weights of a
    softmax, or the outputs of a fused attention.

    >>> ablate(heads=3)
    Ablation(heads=(3,), to=0.0)
    """
    chosen = None if heads is None else (heads,) if isinstance(heads, int) else tuple(heads)
    return Ablation(chosen, to)


def patch(source: Trace, place: str | None = None, *, index: Any = None) -> Patch:
    """Return an edit that takes the value of another run, at the same place or at ``place``, whole or at an index.

    ``index`` is that of ``tensor[index]``, such as ``(slice(None), -1)`` for the last position of every text. The run
    must have kept its tensors (``values="tensors"``).

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> clean = fxdebug.fx_debug(model, torch.ones(1, 2), values="tensors")
    >>> result = fxdebug.edit(model, {"0": fxdebug.patch(clean)}, torch.zeros(1, 2))
    >>> torch.equal(result.b.output, clean.output)
    True
    """
    return Patch(source, place, index)


@internals.not_compiled
def edit(
    model: nn.Module | Trace,
    edits: Mapping[str, Edited],
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    method: str = "forward",
    tolerance: float | None = None,
    strict: bool = False,
) -> Comparison:
    """Run a model unchanged and again with some values changed; return the comparison of the two runs.

    A key of ``edits`` names a call (``h.3.attn``, ``h.3.attn#1`` for its second, ``h.*.attn``) or an operation in a
    call (``h.3.attn/softmax``). It may end in a blank and the thing that is changed: ``args[0]`` or ``kwargs['mask']``
    of a call, ``out[1]`` or ``out.logits`` of its result; without, that is the first tensor of the result. The edit is
    a function of it, a tensor or number that takes its place, :func:`ablate` or :func:`patch`. A function runs where
    the model does, so gradients go through it: ``edit(…).b.output`` is what the model returned with the edits.

    ``inputs`` and ``kwargs`` are those of :func:`fxdebug.fx_debug`; of a trace that kept its tensors they are not
    needed. Both runs begin with the same random state, buffers and attributes; these are restored afterwards.
    ``tolerance`` and ``strict`` are those of :func:`fxdebug.compare`. Raises ``NotFound`` where an edit fits nothing
    that ran, and ``UsageError`` for one that cannot be made; exceptions of the model and of functions pass.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> result = fxdebug.edit(model, {"0": lambda out: out * 0}, torch.ones(1, 2))
    >>> result.verdict, result.first.path, result.b.output.abs().tolist()
    ('different', '0', [[0.0, 0.0]])
    """
    module, clean_inputs = _model_and_inputs(model, inputs, kwargs)
    made = [edit_of(name, change) for name, change in edits.items()]
    if not made:
        raise UsageError("edit needs at least one edit, such as {'h.3.attn': lambda out: out * 0}")
    stepper = run_edits.Edits(made)
    with state_restored(module) as restore:
        a = run_and_store(module, *deep_copy(clean_inputs), method=method, values="tensors")
        _require_known(a, made)
        restore()
        b = run_and_store(module, *deep_copy(clean_inputs), method=method, values="tensors", stepper=stepper)
    unused = [edit.name for number, edit in enumerate(made) if number not in stepper.made]
    if unused:
        raise NotFound(f"the edit of {unused[0]!r} changed nothing: no such call or operation returned in this run")
    notes = [
        Note(f"edited: {', '.join(shown_ids(b, places[:8]))}{' …' if len(places) > 8 else ''}")
        for places in stepper.made.values()
    ]
    b = replaced(b, notes=(*b.notes, *notes), settings={**b.settings, "edited": True})
    comparison = compare(a, b, tolerance=tolerance, strict=strict)
    return replace(comparison, notes=(*[note.what for note in notes], *comparison.notes))


def _model_and_inputs(model: nn.Module | Trace, inputs: Any, kwargs: Any) -> tuple[nn.Module, tuple[Any, Any]]:
    if isinstance(model, nn.Module):
        return model, (() if inputs is None else inputs, kwargs)
    if not isinstance(model, Trace):
        raise UsageError(f"edit needs a model or a trace, not {type(model).__name__}: edit(model, {{…}}, inputs)")
    if inputs is not None or kwargs is not None:
        return model_of(model), (inputs, kwargs)
    return model_of(model), recorded_inputs(model, model.root)


def edit_of(name: str, change: Edited) -> run_edits.Edit:
    """Return the edit of a key of ``edit`` and of what was given for it; raises ``UsageError`` for what is no edit."""
    place, blank, slot_text = name.rpartition(" ")
    found = slot_of(slot_text) if blank else None
    slot, keys = ("out", ()) if found is None else found
    place = name if found is None else place
    if slot != "out" and not keys:
        raise UsageError(f"{name!r}: name one argument, such as '{place} args[0]'")
    if slot != "out" and "/" in place:
        raise UsageError(f"{name!r}: arguments are those of a call; of an operation the result can be edited")
    heads = isinstance(change, Ablation) and change.heads is not None
    return run_edits.Edit(place, _change_of(change, slot, keys), slot, keys, heads)


def _change_of(change: Edited, slot: str, keys: tuple[int | str, ...]) -> Callable[[Any, str], Any]:
    if isinstance(change, Ablation):
        heads, to = change.heads, change.to
        if heads is not None:
            return lambda out, place: without_heads(heads, to, out)
        return lambda out, place: constant_like(out, to)
    if isinstance(change, Patch):
        return lambda out, place: _patched(change, slot, keys, out, place)
    if isinstance(change, Tensor):
        return lambda out, place: change
    if isinstance(change, (int, float)):
        return lambda out, place: constant_like(out, change)
    if not callable(change):
        raise UsageError(f"an edit is a function, a tensor, a number, ablate() or patch(), not {type(change).__name__}")
    return lambda out, place: _called(change, out, place)


def _called(change: Callable[[Any], Any], out: Any, place: str) -> Any:
    new = change(out)
    if new is None and out is not None:
        raise UsageError(f"the edit of {place} returned None: let the function return the new value")
    return new


def _patched(change: Patch, slot: str, keys: tuple[int | str, ...], out: Any, place: str) -> Any:
    """Return the value of the other run in the place of this one."""
    place = change.place or place
    other = change.source.tensor(value_at(change.source, place, slot, keys))
    if not isinstance(out, Tensor) or other.shape != out.shape:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise UsageError(f"{place} has the shape {tuple(other.shape)} in the other run, and {shape} in this one")
    other = other.to(dtype=out.dtype, device=out.device)
    if change.index is None:
        return other
    new = out.clone()
    new[change.index] = other[change.index]
    return new


def _require_known(trace: Trace, edits: Sequence[run_edits.Edit]) -> None:
    """Raise ``NotFound``, with the nearest names, if an edit without wildcards names a module that the run lacks."""
    names = (name for call in trace.calls for name in (call.path or call.type, call.id, *call.aliases))
    known = list(dict.fromkeys([*names, f"{trace.model}#0"]))  # in their order: it decides which names are offered
    for edit in edits:
        if edit.call in known or any(sign in edit.call for sign in "*?["):
            continue
        ops = {node.op: node.id for node in reversed(trace.ops())} if trace.graph_source is not None else {}
        if edit.call in ops:
            raise NotFound(
                f"{edit.call!r} is an operation: name its call, too, as in {ops[edit.call]!r} or '*/{edit.call}'"
            )
        place, blank, slot = edit.call.partition(" ")
        if blank and place in known:
            raise NotFound(f"{edit.call!r}: behind a call stands out, args[0] or kwargs['name'], not {slot!r}")
        raise NotFound(f"no call in this run is named {edit.call!r}.{nearest(edit.call, known)}")

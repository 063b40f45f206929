"""``call.fx`` on other inputs, and on its own: are the bits right for another batch or sequence, and for the same?

The model runs natively on the other inputs; what each call was given there is given to the graph that
was verified in the first run, and what comes out is held against what the call returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from fxdebug import Trace, fx_debug
from fxdebug.capture.runnable_graphs.execute import Executor, inputs_of
from fxdebug.capture.torch_state.grad_mode import in_context
from fxdebug.errors import UsageError
from support import audit

BATCH, LENGTH = "another batch size", "another sequence length"
OWN = "the inputs it was made with"


@dataclass
class Others:
    """The graphs of one entry on other inputs; only graphs without guards about values count."""

    change: str
    stopped: str | None = None  # what the model itself raises for these inputs, or why there are none
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    objects: Counter[str] = field(default_factory=Counter)  # refused: they work on objects (caches), by reason
    refused: Counter[str] = field(default_factory=Counter)  # refused, and they would have been wrong or have failed
    needless: Counter[str] = field(default_factory=Counter)  # refused, though they would have been right
    failed: list[str] = field(default_factory=list)  # raises something that is no refusal
    guarded: int = 0  # graphs with guards about values: not asked


def others(model: Any, inputs: Any, trace: Trace) -> list[Others]:
    """Every graph of ``trace`` on inputs of another batch size and of another sequence length."""
    if isinstance(inputs, dict):
        return [_other(model, changed, trace, what) for what, changed in _changed(inputs)]
    by_position = {str(position): each for position, each in enumerate(inputs)}
    changes = [(what, None if changed is None else tuple(changed.values())) for what, changed in _changed(by_position)]
    return [_other(model, changed, trace, what) for what, changed in changes]


def own_inputs(trace: Trace, kept: dict[int, audit.Kept]) -> Others:
    """Every graph of ``trace`` on what its call was given, which ``kept`` holds; each graph once."""
    found = Others(OWN)
    live: Any = trace.graph_source
    asked: set[int] = set()
    for call in trace.calls:
        if call.status != "verified" or id(call.graph) in asked:
            continue
        asked.add(id(call.graph))
        record = kept[live.verified_call(call.index).tape.index]
        if not record.in_vmap:
            _ask(found, call, record)
    return found


def _changed(inputs: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    yield BATCH, larger_batch(inputs)
    yield LENGTH, shorter(inputs)


def larger_batch(inputs: dict[str, Any]) -> dict[str, Any] | None:
    """One example more: the first one again, in every tensor that has as many as the first tensor."""
    tensors = [x for x in inputs.values() if isinstance(x, torch.Tensor) and x.dim() and x.layout is torch.strided]
    if not tensors or any(x.is_nested for x in tensors):
        return None
    size = tensors[0].shape[0]
    return {
        name: torch.cat([x, x[:1]]).detach().requires_grad_(x.requires_grad)
        if isinstance(x, torch.Tensor) and x.dim() and x.shape[0] == size
        else x
        for name, x in inputs.items()
    }


def shorter(inputs: dict[str, Any]) -> dict[str, Any] | None:
    """Two tokens (or an eighth of a wave) less at the end of what is a sequence by its name; ``None`` without one."""
    found = dict(inputs)
    for name, x in inputs.items():
        if not isinstance(x, torch.Tensor) or x.dim() < 2:
            continue
        if any(part in name for part in ("ids", "mask", "input_values", "inputs_embeds", "bbox")) and x.shape[1] > 3:
            found[name] = x[:, : -max(2, x.shape[1] // 8 if "values" in name else 2)].contiguous()
    return None if all(found[name] is inputs[name] for name in inputs) else found


def _other(model: Any, inputs: dict[str, Any] | tuple[Any, ...] | None, trace: Trace, what: str) -> Others:
    found = Others(what)
    if inputs is None:
        found.stopped = "it has none"
        return found
    try:
        with torch.random.fork_rng(devices=[]), audit.keeping() as kept:
            torch.manual_seed(1)
            second = fx_debug(model, inputs, graph=True)
    except Exception as error:
        found.stopped = f"{type(error).__name__}: {error}".partition("\n")[0]
        return found
    again = {call.id: call for call in second.calls}
    first, live = trace.graph_source, second.graph_source
    asked: set[int] = set()
    for call in trace.calls:
        other = again.get(call.id)
        if call.status != "verified" or other is None or id(call.graph) in asked:
            continue
        explained, native = first.verified_call(call.index), live._tape.call_tapes.get(other.index)  # type: ignore[union-attr]
        if native is None or other.error is not None or not _differs_in_shape(explained.tape, native):
            continue
        asked.add(id(call.graph))
        if any(guard.entry is not None for guard in explained.template.guards):
            found.guarded += 1
            continue
        _ask(found, call, kept[native.index])
    return found


def _differs_in_shape(body: Any, other: Any) -> bool:
    """Was the call given tensors of other shapes this time?"""
    return [facts[0] for facts in body.input_layouts.values()] != [facts[0] for facts in other.input_layouts.values()]


def _ask(found: Others, call: Any, record: audit.Kept) -> None:
    args, kwargs = record.inputs()
    graph = call.fx
    try:
        with record.as_it_was():
            output = graph(*args, **kwargs)
    except UsageError as error:
        _refused(found, graph, record, str(error).partition("does not hold here: ")[2] or str(error))
        return
    except Exception as error:
        found.failed.append(f"{call.id} {call.type}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        return
    problem = audit.differs(output, audit.as_returned(record)) or record.problem_with_objects()
    if problem is None:
        found.right += 1
    else:
        found.wrong.append(f"{call.id} {call.type}: {problem}")


def _refused(found: Others, graph: Any, record: audit.Kept, reason: str) -> None:
    """Was it right to refuse? The graph is run all the same, past its own checks."""
    build, module, _ = graph._source
    template = build.template
    if template.opaque_slots:
        found.objects[reason] += 1
        return
    args, kwargs = record.inputs()
    try:
        given = inputs_of(template, args, kwargs, {})
        with record.as_it_was(), in_context(template.context):
            output = Executor(build, module).run(*given)
    except Exception:
        found.refused[reason] += 1
        return
    (found.needless if audit.differs(output, audit.as_returned(record)) is None else found.refused)[reason] += 1

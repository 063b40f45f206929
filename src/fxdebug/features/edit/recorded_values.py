"""The model, the inputs and single values of a recorded run, to run the model or a part of it again."""

from __future__ import annotations

from typing import Any

from torch import nn

from fxdebug.api.trace import Trace
from fxdebug.data.calls import Call
from fxdebug.data.values import Group, Item, Value, leaves
from fxdebug.errors import NotFound, UsageError, with_article
from fxdebug.query.names import shown_ids
from fxdebug.query.node_lookup import call_at, node_at


def model_of(trace: Trace) -> nn.Module:
    """Return the model of a run; raises ``UsageError`` for one that was loaded."""
    model = getattr(trace.graph_source, "model", None)
    if not isinstance(model, nn.Module):
        raise UsageError("this trace was loaded from disk, without the model: give the model and its inputs")
    return model


def recorded_inputs(trace: Trace, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call from the tensors that the run kept; raises ``UsageError`` if that cannot be."""
    args = tuple([_thing(trace, item, call) for item in call.inputs.args])
    return args, {name: _thing(trace, item, call) for name, item in call.inputs.kwargs.items()}


def _thing(trace: Trace, item: Item, call: Call) -> Any:
    if isinstance(item, Value):
        if item.saved is None or trace.data is None:
            (name,) = shown_ids(trace, [call.id])
            raise UsageError(f"the inputs of {name} were not kept: run with values='tensors', or give inputs")
        return trace.tensor(item)
    if isinstance(item, Group) and item.kind == "sequence" and item.type in ("list", "tuple"):
        return {"list": list, "tuple": tuple}[item.type]([_thing(trace, inner, call) for inner in item.items])
    if isinstance(item, Group) and item.type == "dict":
        return dict(zip(item.keys or (), [_thing(trace, inner, call) for inner in item.items]))
    if item is None or isinstance(item, (bool, int, float, complex, str, bytes)):
        return item
    given = with_article(item.type)
    raise UsageError(f"{shown_ids(trace, [call.id])[0]} was given {given}, which a trace does not keep: give inputs")


def value_at(trace: Trace, place: str, slot: str = "out", keys: tuple[int | str, ...] = ()) -> Value:
    """Return a tensor of a call or an operation: of its result, or with another slot of its arguments.

    ``keys`` lead to it; without any it is the first. Raises ``NotFound`` where there is none.
    """
    if "/" in place:
        return _chosen(node_at(trace, place).item, keys, place)
    call = call_at(trace, place)
    if slot == "kwargs":
        return _chosen(call.inputs.kwargs.get(str(keys[0])), keys[1:], place)
    if slot == "args":
        given = call.inputs.args
        return _chosen(given[int(keys[0])] if int(keys[0]) < len(given) else None, keys[1:], place)
    return _chosen(None if call.outputs is None else call.outputs.item, keys, place)


def _chosen(item: Item, keys: tuple[int | str, ...], place: str) -> Value:
    for key in keys:
        inner: Any = item
        try:
            item = inner[key]
        except (LookupError, TypeError, NotFound):
            raise NotFound(f"{place} has no {key!r} in this run") from None
    for _, value in leaves(item):
        return value
    raise NotFound(f"{place} has no tensor in this run")

"""The standard nested tree: the JSON of transformers' ``model_addition_debugger_context``.

Text-equal to what the reference writes where it works, and made from a finished
:class:`~fxdebug.data.trace.TraceData`: the modules that were registered when the run began, the inputs of
every call, the outputs of calls without calls below them. A call that raised has ``error`` in
addition, which the reference has no place for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Inputs, Item, Thing, Value

Node: TypeAlias = dict[str, Any]
Entry: TypeAlias = Callable[[Value, str], Node]  # (value, the reference's name for it) → its JSON

_ADDRESS = re.compile(r"object at 0x[0-9A-Fa-f]+")
_LAYER = re.compile(r"(.*)\.(\d+)$")


def debug_tree(trace: TraceData, entry: Entry, *, prune: bool) -> Node:
    """The tree as nested dicts, ready for :mod:`fxdebug.store.transformers.tree_files`.

    ``entry`` makes the JSON of a tensor. ``prune`` removes middle layers as the reference does: of
    siblings whose path ends in a number and that have children of that number, the first and last stay.
    """
    nodes: dict[int, Node] = {}
    below: dict[int, list[Call]] = {}
    for call in trace.calls:
        if call.origin == "registered":
            nodes[call.index] = _node(trace, call, entry)
            if call.parent_index is not None and (above := _registered_caller(trace, call)) is not None:
                below.setdefault(above, []).append(call)
    for index, calls in below.items():  # the reference lists calls as they end
        calls.sort(key=lambda call: (call.finished is None, call.finished or 0, call.index))
        nodes[index]["children"] = [nodes[call.index] for call in calls]
    root = {key: value for key, value in nodes[0].items() if value}
    if prune:
        _prune_layers(root)
    for node in _walk(root):
        if node.get("children"):
            node.pop("outputs", None)
    return root


def _registered_caller(trace: TraceData, call: Call) -> int | None:
    """The registered call that was running when this one was made: what the reference hangs it under.

    ``None`` where none was: of such a call (a generator made it, outside any) the reference keeps nothing.
    """
    while True:
        index = call.invoked_in if call.invoked_in is not None else call.parent_index
        if index is None or index < 0:
            return None
        call = trace.calls[index]
        if call.origin == "registered":
            return index


def _node(trace: TraceData, call: Call, entry: Entry) -> Node:
    path = f"{trace.model}.{call.path}" if call.path else trace.model
    node: Node = {"module_path": path}
    if call.parent_index is None and call.method != "forward":
        return node  # stands for calls made outside the model's forward: nothing went in
    node["inputs"] = _inputs(call.inputs, entry, f"{path}_inputs", everything=call.parent_index is None)
    node["outputs"] = None
    if call.outputs is not None and (call.parent_index is None or not call.has_submodules):
        node["outputs"] = _json(call.outputs.item, entry, f"{path}_outputs")
    if call.error is not None:
        node["error"] = str(call.error)
    return node


def _inputs(inputs: Inputs, entry: Entry, path: str, everything: bool) -> Node:
    found: Node = {}
    if inputs.args or everything:
        found["args"] = [_json(arg, entry, f"{path}_args_{i}") for i, arg in enumerate(inputs.args)]
    if inputs.kwargs or everything:
        found["kwargs"] = {name: _json(arg, entry, f"{path}_kwargs_{name}") for name, arg in inputs.kwargs.items()}
    return found


def _json(item: Item, entry: Entry, path: str) -> Any:
    top: list[Any] = [None]
    pending: list[tuple[Item, str, Any, Any]] = [(item, path, top, 0)]  # items, their names, where their JSON goes
    while pending:
        item, path, container, place = pending.pop()
        if isinstance(item, Value):
            container[place] = entry(item, path)
        elif isinstance(item, Group) and item.kind == "sequence":
            container[place] = items = [None] * len(item.items)
            pending.extend((inner, f"{path}_{i}", items, i) for i, inner in enumerate(item.items))
        elif isinstance(item, Group) and item.kind == "mapping":
            assert item.keys is not None
            made: Node = {}
            container[place] = made
            for key, inner in zip(item.keys, item.items):
                made[name := _unused_key(key, made)] = None
                pending.append((inner, f"{path}_{_key_text(key)}", made, name))
        else:
            text = (item.text or "") if isinstance(item, (Group, Thing)) else repr(item)
            container[place] = _ADDRESS.sub("object at 0xXXXXXXXX", text)
    return top[0]


def plain_key(key: Any) -> Any:
    """A dict key as ``json.dump`` takes it; keys it does not know become their text."""
    if isinstance(key, Thing):
        return key.text
    return key if key is None or isinstance(key, (str, int, float)) else repr(key)


def _unused_key(key: Any, taken: Node) -> Any:
    """The key in JSON; a number is appended to a text that stands for several keys."""
    name, number = plain_key(key), 1
    while name in taken:
        number += 1
        name = f"{plain_key(key)}-{number}"
    return name


def _key_text(key: Any) -> str:
    return key.text if isinstance(key, Thing) else str(key)


def _walk(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.get("children", ()))


def _prune_layers(root: Node) -> None:
    for node in _walk(root):
        children = node.get("children")
        if children:
            layers = [child for child in children if _is_layer(child)]
            dropped = {id(child) for child in layers[1:-1]} if len(layers) > 2 else set()
            node["children"] = [child for child in children if id(child) not in dropped]


def _is_layer(node: Node) -> bool:
    match = _LAYER.match(node["module_path"])
    if not match or not node.get("children"):
        return False
    return any(f".{match.group(2)}." in child["module_path"] for child in node["children"])


# Entries -----------------------------------------------------------------------------------------


def shape_and_dtype(value: Value) -> Node:
    """Shape and dtype, as the reference writes them."""
    return {"shape": f"torch.Size({list(value.shape)})", "dtype": f"torch.{value.dtype}"}


def statistics_entry(words: tuple[str, str, str, str] | None) -> Node:
    """Mean, std, min and max under the reference's keys."""
    return {} if words is None else dict(zip(("mean", "std", "min", "max"), words))

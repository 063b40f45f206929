"""Build the debug tree of a finished trace: the nested JSON of transformers' ``model_addition_debugger_context``.

The text is equal to transformers' wherever its debugger works. The tree holds the modules that were registered when the
run began, the inputs of every call, and the outputs of calls without calls below them. A call that raised also has
``error``, which transformers' debugger does not write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Inputs, Item, Thing, Value

Node: TypeAlias = dict[str, Any]
Entry: TypeAlias = Callable[[Value, str], Node]  # (value, transformers' name for it) → its JSON

_ADDRESS = re.compile(r"object at 0x[0-9A-Fa-f]+")
_LAYER = re.compile(r"(.*)\.(\d+)$")


def debug_tree(trace: TraceData, entry: Entry, *, prune: bool) -> Node:
    """Return the tree as nested dicts, ready for :mod:`fxdebug.store.transformers.tree_files`.

    ``entry`` makes the JSON of a tensor. ``prune`` removes middle layers as transformers' debugger does. A layer is a
    call whose path ends in a number that its children's paths contain; of sibling layers the first and the last stay.
    """
    nodes: dict[int, Node] = {}
    below: dict[int, list[Call]] = {}
    for call in trace.calls:
        if call.origin == "registered":
            nodes[call.index] = _node(trace, call, entry)
            if call.parent_index is not None and (above := _registered_caller(trace, call)) is not None:
                below.setdefault(above, []).append(call)
    for index, calls in below.items():  # transformers' debugger lists calls in the order in which they end
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
    """Return the registered call that was running when this one was made: its parent in the debug tree.

    ``None`` if none was running (a generator made the call, outside any other): the tree leaves such a call out.
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
        return node  # the node of calls outside the model's forward: it has no inputs
    node["inputs"] = _inputs(call.inputs, entry, f"{path}_inputs", everything=call.parent_index is None)
    node["outputs"] = None
    if call.outputs is not None and (call.parent_index is None or not call.has_submodules):
        node["outputs"] = _json(call.outputs.item, entry, f"{path}_outputs")
    if call.error is not None:
        node["error"] = str(call.error)
    return node


def _inputs(inputs: Inputs, entry: Entry, path: str, everything: bool) -> Node:
    node: Node = {}
    if inputs.args or everything:
        node["args"] = [_json(arg, entry, f"{path}_args_{i}") for i, arg in enumerate(inputs.args)]
    if inputs.kwargs or everything:
        node["kwargs"] = {name: _json(arg, entry, f"{path}_kwargs_{name}") for name, arg in inputs.kwargs.items()}
    return node


def _json(item: Item, entry: Entry, path: str) -> Any:
    top: list[Any] = [None]
    pending: list[tuple[Item, str, Any, Any]] = [(item, path, top, 0)]  # item, name, container and slot for its JSON
    while pending:
        item, path, container, slot = pending.pop()
        if isinstance(item, Value):
            container[slot] = entry(item, path)
        elif isinstance(item, Group) and item.kind == "sequence":
            container[slot] = items = [None] * len(item.items)
            pending.extend((inner, f"{path}_{i}", items, i) for i, inner in enumerate(item.items))
        elif isinstance(item, Group) and item.kind == "mapping":
            assert item.keys is not None
            mapping: Node = {}
            container[slot] = mapping
            for key, inner in zip(item.keys, item.items):
                mapping[name := _unused_key(key, mapping)] = None
                pending.append((inner, f"{path}_{_key_text(key)}", mapping, name))
        else:
            text = (item.text or "") if isinstance(item, (Group, Thing)) else repr(item)
            container[slot] = _ADDRESS.sub("object at 0xXXXXXXXX", text)
    return top[0]


def plain_key(key: Any) -> Any:
    """Return a dict key that ``json.dump`` accepts; a key of another type becomes its text."""
    if isinstance(key, Thing):
        return key.text
    return key if key is None or isinstance(key, (str, int, float)) else repr(key)


def _unused_key(key: Any, taken: Node) -> Any:
    """Return the key for JSON, with a number appended if an earlier key has the same text."""
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


# The JSON of a tensor ----------------------------------------------------------------------------


def shape_and_dtype(value: Value) -> Node:
    """Return shape and dtype as transformers' debugger writes them."""
    return {"shape": f"torch.Size({list(value.shape)})", "dtype": f"torch.{value.dtype}"}


def statistics_entry(printed: tuple[str, str, str, str] | None) -> Node:
    """Return mean, std, min and max under transformers' keys."""
    return {} if printed is None else dict(zip(("mean", "std", "min", "max"), printed))

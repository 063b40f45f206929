"""Read a debug tree back, written by transformers' ``model_addition_debugger_context`` or by fxdebug.

Any ``…_debug_tree_FULL_TENSORS.json`` or ``…_SUMMARY.json`` becomes a :class:`~fxdebug.data.trace.TraceData`: the calls
with their inputs and outputs, as far as the file has them. It has no graphs, no classes of modules and no identity of
values: an input with the same data as an earlier output is taken for the same value. The trace's notes say what the
file lacks and what is known to be wrong with it. No torch is needed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fxdebug.data.calls import OUTSIDE_FORWARD, Call, Failure, Note
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Inputs, Item, Outputs, Thing, as_item
from fxdebug.errors import LoadError
from fxdebug.features.debug_trees.read_values import TreeValues, is_tensor
from fxdebug.features.debug_trees.tree_data import TreeData
from fxdebug.files.read_file import first_bytes, read_text
from fxdebug.files.schema import Damaged, Reader, every, lists, objects, optional, record, texts
from fxdebug.files.system_errors import system_errors_told
from fxdebug.store.deep_json import loads

UNKNOWN = "Module"  # the class given to every module except the model, as the file names none

_NAME = re.compile(r"(.+)_debug_tree_(FULL_TENSORS|SUMMARY)(?:\.\d+)?\.json")
_BEGINNING = re.compile(rb'\s*\{\s*"module_path"')
_LAYER = re.compile(r"(.*)\.(\d{1,18})$")
_CLASS = re.compile(r"<?(?:[\w]+\.)*(\w+)")
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": -float("inf")}
_LITERALS = (bool, int, float, complex, str, bytes, type(None))
_LITERAL = re.compile(r"None|True|False|b?['\"]|[-(]?[-\d.]{1,2000}", re.DOTALL)  # the beginning of one

# The schema of a node of the tree, and of the inputs in it; what is in a container is an item of any kind.
_NODE: dict[str, Reader] = {
    "module_path": texts, "inputs": optional(objects), "children": lists, "outputs": every, "error": optional(texts),
}  # fmt: skip
_NODE_DEFAULTS: dict[str, Any] = {"inputs": None, "children": [], "outputs": None, "error": None}
_INPUTS: dict[str, Reader] = {"args": lists, "kwargs": objects}
_INPUTS_DEFAULTS: dict[str, Any] = {"args": [], "kwargs": {}}


def is_tree(path: Path) -> bool:
    """Is the file a debug tree, by its name or its beginning?

    >>> is_tree(Path("BertModel_debug_tree_SUMMARY.json"))
    True
    """
    return _NAME.fullmatch(path.name) is not None or _BEGINNING.match(first_bytes(path, 400)) is not None


def find_tree(folder: Path) -> Path | None:
    """Return the tree in a folder: the full one if there are both, of several forwards the last; ``None`` if none.

    Raises :class:`LoadError` if the folder holds trees of several models: one has to be named.
    """
    trees: dict[str, dict[str, Path]] = {}  # by model and kind
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match and path.name.endswith((f"{match[2]}.json",)):
            trees.setdefault(match[1], {})[match[2]] = path
    if len(trees) > 1:
        names = ", ".join(
            path.name for kinds in trees.values() for path in [kinds.get("FULL_TENSORS") or kinds["SUMMARY"]]
        )
        raise LoadError(f"{folder} holds the trees of {len(trees)} models: load one of {names}")
    kinds = next(iter(trees.values()), {})
    return kinds.get("FULL_TENSORS") or kinds.get("SUMMARY")


def read_tree_file(path: Path) -> TraceData:
    """Return the trace in a debug tree. Raises :class:`LoadError` if the file is no tree, or damaged."""
    repeated: list[str] = []
    try:
        with system_errors_told(path):
            tree = _parse(path, repeated)
            return _TreeReader(path, tree).trace(repeated)
    except Damaged as error:
        raise LoadError(f"{path} is damaged: {error}") from None


def _parse(path: Path, repeated: list[str]) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return a mapping with every item: keys that differ in Python (1 and "1") may be equal in JSON."""
        mapping = dict(items)
        if len(mapping) == len(items):
            return mapping
        mapping = {}
        for key, content in items:
            name, number = key, 1
            while name in mapping:
                number += 1
                name = f"{key}-{number}"
            if name != key:
                repeated.append(key)
            mapping[name] = content
        return mapping

    text = read_text(path, "a tree of a model")
    try:
        tree = loads(text, object_pairs_hook=pairs)
    except ValueError as error:
        raise LoadError(f"{path} is cut short or damaged: {error}") from error
    if not isinstance(tree, dict) or not isinstance(tree.get("module_path"), str):
        raise LoadError(f'{path} is not a tree of a model: it does not begin with "module_path"')
    return tree


class _TreeReader:
    """Build the trace of one file."""

    def __init__(self, path: Path, tree: dict[str, Any]) -> None:
        self._path = path
        self._tree = tree
        self._model: str = tree["module_path"]
        self._calls: list[dict[str, Any]] = []
        self._numbers: Counter[str] = Counter()
        self._finished = 0
        self._notes: list[Note] = []
        self._tensors = TreeValues(path.parent, _tensors_in(tree))

    def trace(self, repeated: list[str]) -> TraceData:
        """Return the whole trace. ``repeated``: keys that occur several times in one mapping."""
        self._walk()
        self._note(
            f"read from {self._path.name}, which has no classes of modules, no graphs, no parameters, no outputs of "
            "calls with calls inside, and statistics of a few digits for float16, bfloat16 and float32 only"
        )
        for key in dict.fromkeys(repeated):
            self._note(f"the key {key!r} stands twice in one mapping: the later one has a number here")
        self._note_pruned_layers()
        for what in self._tensors.notes():
            self._note(what)
        calls = tuple([Call(**facts) for facts in self._calls])
        return TraceData(
            self._model,
            calls,
            tuple(self._tensors.values),
            modules={call.path: call.type for call in calls},
            notes=tuple(self._notes),
            settings=self._settings(),
            data=TreeData(self._path.parent, self._tensors.printed, self._tensors.lines),
            folder=self._path.parent,
        )

    def _settings(self) -> dict[str, Any]:
        kind = "repr" if self._tensors.lines else "tensors" if self._tensors.files else "stats"
        digits = self._tensors.precision
        return {
            "values": kind,
            "method": "forward",
            "precision": digits,
            "printed": digits + 1,
            "read": self._path.name,
        }

    def _note(self, what: str, call: int | None = None) -> None:
        self._notes.append(Note(what, "" if call is None else self._calls[call]["path"], call))

    # Calls ---------------------------------------------------------------------------------------

    def _walk(self) -> None:
        pending: list[tuple[dict[str, Any], int | None, int, int | None]] = [(self._tree, None, 0, None)]
        while pending:
            node, parent, depth, ends = pending.pop()
            if ends is not None:
                self._calls[ends]["finished"] = self._finished
                self._finished += 1
                continue
            index = self._call(node, parent, depth)
            pending.append((node, parent, depth, index))
            pending.extend((child, index, depth + 1, None) for child in reversed(node.get("children", [])))

    def _call(self, node: Any, parent: int | None, depth: int) -> int:
        place = self._model if parent is None else f"a call inside {self._calls[parent]['path'] or self._model}"
        found = record({place: node}, place, _NODE, _NODE_DEFAULTS)
        path, index, children = self._relative(found["module_path"]), len(self._calls), found["children"]
        place = f"{found['module_path']}.inputs"
        inputs = record({place: found["inputs"] or {}}, place, _INPUTS, _INPUTS_DEFAULTS)
        self._calls.append(facts := {"index": index, "path": path, "number": self._numbers[path], "depth": depth})
        self._numbers[path] += 1
        self._tensors.begin_inputs()
        arguments = tuple([self._item(arg) for arg in inputs["args"]])
        keywords = {name: self._item(arg) for name, arg in inputs["kwargs"].items()}
        facts |= {
            "type": UNKNOWN if path else self._model,
            "inputs": Inputs(arguments, keywords),
            "parent_index": parent,
        }
        facts["has_submodules"] = bool(children) or node.get("outputs") is None
        facts["aliases"] = (path,) if path else ()
        if not depth and "inputs" not in node:  # the node stands for calls outside any forward of the model
            facts["method"] = OUTSIDE_FORWARD
        if node.get("error") is not None:
            below = any(child.get("error") == node["error"] for child in children if isinstance(child, dict))
            facts["error"] = _failure(node["error"], not below)
        elif node.get("outputs") is not None:
            self._tensors.begin_outputs()
            facts["outputs"] = Outputs(self._item(node["outputs"]))
        return index

    def _relative(self, path: str) -> str:
        """Return the path below the model; a model that calls itself stands in its own tree, at the path ``""``."""
        if path in (self._model, f"{self._model} (top-level)"):
            return ""
        return path.removeprefix(f"{self._model}.")

    def _item(self, coded: Any) -> Item:
        if is_tensor(coded) or not isinstance(coded, (dict, list)):
            return self._leaf(coded)
        opened: list[tuple[Any, Iterator[Any], list[Item]]] = [(coded, _items_of(coded), [])]
        while True:  # no recursion: containers may be nested deeper than Python's stack allows
            container, rest, items = opened[-1]
            for inner in rest:
                if isinstance(inner, (dict, list)) and not is_tensor(inner):
                    opened.append((inner, _items_of(inner), []))
                    break
                items.append(self._leaf(inner))
            else:
                opened.pop()
                keys = tuple(container) if isinstance(container, dict) else None
                kind, name = ("sequence", "list") if keys is None else ("mapping", "dict")
                group = Group(kind, name, tuple(items), keys)
                if not opened:
                    return group
                opened[-1][2].append(group)

    def _leaf(self, coded: Any) -> Item:
        if is_tensor(coded):
            return self._tensors.value_of(coded)
        return _from_text(coded) if isinstance(coded, str) else as_item(coded)

    # Layers that are missing ---------------------------------------------------------------------

    def _note_pruned_layers(self) -> None:
        """Note where middle layers were left out: of each call's layers the debugger kept the first and the last."""
        below: dict[int, list[int]] = {}
        for facts in self._calls:
            if facts["parent_index"] is not None:
                below.setdefault(facts["parent_index"], []).append(facts["index"])
        layers = {index: [i for i in calls if self._is_layer(i, below)] for index, calls in below.items()}
        if any(len(layers_of_call) > 2 for layers_of_call in layers.values()):
            return  # the debugger prunes everywhere or nowhere
        for index, layers_of_call in layers.items():
            if len(layers_of_call) == 2:
                (stack, first), (other, last) = (_LAYER.match(self._calls[i]["path"]).groups() for i in layers_of_call)  # type: ignore[union-attr]
                if stack != other:
                    self._note(
                        f"between {stack}.{first} and {other}.{last} layers may have been left out (pruned)", index
                    )
                elif int(last) - int(first) > 1:
                    rest = f"{int(first) + 1} to {int(last) - 1}" if int(last) - int(first) > 2 else str(int(first) + 1)
                    self._note(
                        f"{stack}: {rest} not in the file: pruned, as the debugger does unless told otherwise", index
                    )

    def _is_layer(self, index: int, below: dict[int, list[int]]) -> bool:
        match = _LAYER.match(f".{self._calls[index]['path']}")
        return match is not None and any(f".{match[2]}." in f".{self._calls[i]['path']}" for i in below.get(index, ()))


def _items_of(container: dict[str, Any] | list[Any]) -> Iterator[Any]:
    return iter(container.values() if isinstance(container, dict) else container)


def _tensors_in(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the JSON of every tensor in the tree, in the order in which the debugger recorded it."""
    nodes: list[Any] = [tree]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, dict):
            continue
        items: list[Any] = [node.get("outputs"), node.get("inputs")]
        while items:
            item = items.pop()
            if is_tensor(item):
                yield item
            elif isinstance(item, (dict, list)):
                items.extend(reversed(list(item.values() if isinstance(item, dict) else item)))
        children = node.get("children")
        if isinstance(children, list):
            nodes.extend(reversed(children))


def _failure(text: str, here: bool) -> Failure:
    """Return an exception from the text ``Type: message``.

    >>> _failure("ValueError: no way", True)
    Failure(type='ValueError', message='no way', here=True)
    """
    kind, colon, message = text.partition(": ")
    return Failure(kind, message, here) if colon and kind.isidentifier() else Failure(text, "", here)


def _from_text(text: str) -> Item:
    """Return the plain value whose ``repr`` this is, if it can be no other; else a :class:`Thing`.

    >>> _from_text("2.0"), _from_text("'2.0'"), _from_text("DynamicCache(layers=[…])").type
    (2.0, '2.0', 'DynamicCache')
    """
    if text in _FLOATS:
        return as_item(_FLOATS[text])
    if _LITERAL.match(text):
        try:
            literal = ast.literal_eval(text)
            if type(literal) in _LITERALS and repr(literal) == text:
                return as_item(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    match = _CLASS.match(text)
    return Thing(match[1] if match else "object", text)

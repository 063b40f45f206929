"""The two files of the standard tree, as ``json.dump(tree, file, indent=2)`` writes them, of any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TextIO

from fxdebug.store import deep_json
from fxdebug.store.transformers.write_tree import Node


class Lines(list[str]):
    """The printed lines of one value, read when they are written out: never all in memory."""

    def __init__(self, read: Callable[[], list[str]]) -> None:
        super().__init__()
        self._read = read
        self._ready: list[str] | None = None

    def __bool__(self) -> bool:  # asked right before the lines are gone through
        self._ready = self._read()
        return bool(self._ready)

    def __iter__(self) -> Iterator[str]:
        lines, self._ready = self._ready, None
        return iter(self._read() if lines is None else lines)


def write_full(tree: Node, file: TextIO) -> None:
    """``…_FULL_TENSORS.json``."""
    deep_json.put(tree, file.write)


def write_summary(tree: Node, file: TextIO) -> None:
    """``…_SUMMARY.json``: the tree without any key ``value`` in inputs and outputs, as the reference has it."""
    deep_json.put(_summary(tree), file.write)


def _summary(tree: Node) -> Node:
    top = dict(tree)
    pending = [top]
    while pending:
        node = pending.pop()
        for part in ("inputs", "outputs"):
            if part in node:
                node[part] = _without_values(node[part])
        if node.get("children"):
            node["children"] = [dict(child) for child in node["children"]]
            pending.extend(node["children"])
    return top


def _without_values(content: Any) -> Any:
    """Inputs or outputs without any key ``value``."""
    top: list[Any] = [content]
    pending: list[Any] = [top]
    while pending:
        container = pending.pop()
        for place, inner in enumerate(container) if type(container) is list else container.items():
            if type(inner) is str:
                continue
            if isinstance(inner, dict):
                container[place] = made = _without_value(inner)
                pending.append(made)
            elif isinstance(inner, (list, tuple)):
                container[place] = items = list(inner)
                pending.append(items)
    return top[0]


def _without_value(content: Node) -> Node:
    kept: Node = {}  # keys that are one in JSON are one here: the reference read its JSON back
    for key, inner in content.items():
        text = key if type(key) is str else deep_json.key_text(key)
        if text != "value":
            kept[text] = inner
    return kept

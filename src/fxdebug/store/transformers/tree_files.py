"""The two JSON files of the debug tree: their names, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.store import deep_json
from fxdebug.store.trace_json import trace_file
from fxdebug.store.transformers import write_tree
from fxdebug.store.transformers.printed_statistics import print_statistics
from fxdebug.store.transformers.safe_file_names import MAX_NAME_BYTES, UniqueNames, ignores_case, safe_name
from fxdebug.store.transformers.write_tree import Node


class ValueFiles(Protocol):
    """Where each value lies in a file of its own (``tensors.Files``)."""

    def name(self, value: Value) -> str | None: ...


def tree_file_names(model: str) -> tuple[str, str]:
    """The reference's two file names for a model class; a class name too long for one is shortened."""
    suffixes = "_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json"
    longest = MAX_NAME_BYTES - len(".999")
    if len((model + suffixes[0]).encode()) > longest:
        model = safe_name(model, "." * (MAX_NAME_BYTES - longest + len(suffixes[0]))).rstrip(".")
    full, summary = (safe_name(model, suffix) for suffix in suffixes)
    return full, summary


def open_text(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", buffering=1 << 18)


def tensor_content(trace: TraceData, shards: Mapping[str, str]) -> Callable[[Value, str], Any] | None:
    """What stands under ``value`` in the full tree, or ``None`` if there is nothing to put there."""
    if any(value.saved for value in trace.values):
        return lambda value, path: value.saved and f"./{trace_file.renamed_shard(value.saved, shards)}"
    data = trace.data
    if data is None or not any(data.lines(value) is not None for value in trace.values[:64]):
        return None
    return lambda value, path: PrintedLines(lambda: data.lines(value) or [])


def tensor_entry(trace: TraceData, content: Callable[[Value, str], Any] | None) -> write_tree.Entry:
    data, settings = trace.data, trace.settings
    precision, default = int(settings.get("precision", 4)), str(settings.get("default_dtype", "float32"))

    known: dict[int, tuple[write_tree.Node, write_tree.Node]] = {}  # by value: most stand in the tree several times

    def entry(value: Value, path: str) -> write_tree.Node:
        if value.number not in known:
            words = data.printed(value) if data is not None else None
            numbers = write_tree.statistics_entry(words or print_statistics(value, precision, default))
            known[value.number] = write_tree.shape_and_dtype(value), numbers
        described, numbers = known[value.number]
        if content is None:
            return {**described, **numbers}
        return {**described, "value": content(value, path), **numbers}

    return entry


def write_tree_files(
    trace: TraceData, folder: Path, *, prune: bool, files: ValueFiles | None
) -> tuple[list[str], dict[str, str]]:
    """Write just the reference's JSON files; return their names, and those of its tensors.

    With ``files`` each tensor that the tree shows gets the reference's name for the value's one file, which may have
    several; what the tree does not show stays behind.
    """
    full_name, summary_name = tree_file_names(trace.model)
    if files is None:
        content = tensor_content(trace, {}) or (lambda value, path: [])
    else:
        content = _TensorReference
    tree = write_tree.debug_tree(trace, tensor_entry(trace, content), prune=prune)
    links: dict[str, str] = {}
    if files is not None:
        names = UniqueNames(ignores_case(folder))
        for name in (full_name, summary_name):
            names.take(Path(name).stem, ".json")
        links = _assign_file_names(tree, names, files)
    for name, write in ((full_name, write_full_tree), (summary_name, write_summary_tree)):
        with open_text(folder / name) as file:
            write(tree, file)
    return [full_name, summary_name], links


class _TensorReference:
    """Stands in the tree where a file name will."""

    def __init__(self, value: Value, path: str) -> None:
        self.value = value
        self.path = path


def _assign_file_names(root: write_tree.Node, names: UniqueNames, files: ValueFiles) -> dict[str, str]:
    """Give every reference left in the tree its file name, in the order in which they stand there: names and files.

    A value whose data could not be written (a meta tensor has none) becomes ``null``.
    """
    links: dict[str, str] = {}
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            reference = node.get("value")
            if isinstance(reference, _TensorReference):
                file = files.name(reference.value)
                node["value"] = None
                if file is not None:
                    name = names.take(reference.path.removesuffix(".safetensors"), ".safetensors")
                    node["value"] = f"./{name}"
                    links[name] = file
            else:
                pending.extend(reversed(list(node.values())))
        elif isinstance(node, list):
            pending.extend(reversed(node))
    return links


class PrintedLines(list[str]):
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


def write_full_tree(tree: Node, file: TextIO) -> None:
    """``…_FULL_TENSORS.json``."""
    deep_json.write_indented(tree, file.write)


def write_summary_tree(tree: Node, file: TextIO) -> None:
    """``…_SUMMARY.json``: the tree without any key ``value`` in inputs and outputs, as the reference has it."""
    deep_json.write_indented(_summary_of(tree), file.write)


def _summary_of(tree: Node) -> Node:
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
        text = key if type(key) is str else deep_json.json_key(key)
        if text != "value":
            kept[text] = inner
    return kept

"""The two JSON files of the debug tree, ``…_FULL_TENSORS.json`` and ``…_SUMMARY.json``: their names and their text.

The text is what ``json.dump(tree, file, indent=2)`` writes, at any depth of nesting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.store import deep_json
from fxdebug.store.trace_json.trace_file import renamed_shard
from fxdebug.store.transformers.printed_statistics import print_statistics
from fxdebug.store.transformers.safe_file_names import MAX_NAME_BYTES, UniqueNames, ignores_case, safe_name
from fxdebug.store.transformers.write_tree import Entry, Node, debug_tree, shape_and_dtype, statistics_entry

Content = Callable[[Value, str], Any]  # (value, transformers' name for it) → the JSON under the key ``value``


class ValueFiles(Protocol):
    """The file of each value, where every value has its own (``OneFileEach``)."""

    def name(self, value: Value) -> str | None: ...


def tree_file_names(model: str) -> tuple[str, str]:
    """Return transformers' two file names for a model class, full and summary; a class name too long is shortened."""
    suffixes = "_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json"
    longest = MAX_NAME_BYTES - len(".999")  # room for the number of an earlier run
    if len((model + suffixes[0]).encode()) > longest:
        model = safe_name(model, "." * (MAX_NAME_BYTES - longest + len(suffixes[0]))).rstrip(".")
    full, summary = (safe_name(model, suffix) for suffix in suffixes)
    return full, summary


def open_text(path: Path) -> TextIO:
    """Open a text file for writing, with a large buffer."""
    return path.open("w", encoding="utf-8", buffering=1 << 18)


# Both files of a run -----------------------------------------------------------------------------


def write_tree_files(trace: TraceData, folder: Path, *, prune: bool, shards: Mapping[str, str]) -> list[str]:
    """Write the files of the debug tree beside ``trace.json``; return their names.

    The full one is written only where values were printed or saved. ``shards``: old and new names of renamed files.
    """
    full_name, summary_name = tree_file_names(trace.model)
    names = []
    content = tensor_content(trace, shards)
    tree = debug_tree(trace, tensor_entry(trace, content), prune=prune)
    if content is not None:
        with open_text(folder / full_name) as file:
            write_full_tree(tree, file)
        names.append(full_name)
    with open_text(folder / summary_name) as file:
        write_summary_tree(tree, file)
    return [*names, summary_name]


def write_drop_in_files(
    trace: TraceData, folder: Path, *, prune: bool, files: ValueFiles | None
) -> tuple[list[str], dict[str, str]]:
    """Write the debug tree alone, as transformers' debugger does; return the file names, and the names of tensors.

    ``files``: the one file of each value. A value gets a name for each place in the tree, and all its names map to that
    file; a value that is not in the tree gets none.
    """
    full_name, summary_name = tree_file_names(trace.model)
    content: Content = _TensorReference
    if files is None:
        content = tensor_content(trace, {}) or (lambda value, path: [])
    tree = debug_tree(trace, tensor_entry(trace, content), prune=prune)
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


# The JSON of a tensor ----------------------------------------------------------------------------


def tensor_content(trace: TraceData, shards: Mapping[str, str]) -> Content | None:
    """Return the function that gives the JSON under ``value``; ``None`` if no tensor was saved or printed."""
    if any(value.saved for value in trace.values):
        return lambda value, path: value.saved and f"./{renamed_shard(value.saved, shards)}"
    data = trace.data
    if data is None or not any(data.lines(value) is not None for value in trace.values[:64]):
        return None
    return lambda value, path: PrintedLines(lambda: data.lines(value) or [])


def tensor_entry(trace: TraceData, content: Content | None) -> Entry:
    """Return the function that gives the JSON of a tensor: shape, dtype, ``content`` and statistics."""
    data, settings = trace.data, trace.settings
    precision, default = int(settings.get("precision", 4)), str(settings.get("default_dtype", "float32"))
    cache: dict[int, tuple[Node, Node]] = {}  # by value: most values stand in the tree several times

    def entry(value: Value, path: str) -> Node:
        if value.number not in cache:
            printed = data.printed(value) if data is not None else None
            numbers = statistics_entry(printed or print_statistics(value, precision, default))
            cache[value.number] = shape_and_dtype(value), numbers
        header, numbers = cache[value.number]
        if content is None:
            return {**header, **numbers}
        return {**header, "value": content(value, path), **numbers}

    return entry


class PrintedLines(list[str]):
    """The printed lines of one value, read only when they are written, so that those of all never fill the memory."""

    def __init__(self, read: Callable[[], list[str]]) -> None:
        super().__init__()
        self._read = read
        self._ready: list[str] | None = None

    def __bool__(self) -> bool:  # asked right before the lines are iterated
        self._ready = self._read()
        return bool(self._ready)

    def __iter__(self) -> Iterator[str]:
        lines, self._ready = self._ready, None
        return iter(self._read() if lines is None else lines)


class _TensorReference:
    """A place in the tree that will hold a file name."""

    def __init__(self, value: Value, path: str) -> None:
        self.value = value
        self.path = path


def _assign_file_names(root: Node, names: UniqueNames, files: ValueFiles) -> dict[str, str]:
    """Replace every reference in the tree with a file name, in the order of the tree; return names and files.

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


# Text --------------------------------------------------------------------------------------------


def write_full_tree(tree: Node, file: TextIO) -> None:
    """Write the text of ``…_FULL_TENSORS.json``."""
    deep_json.write_indented(tree, file.write)


def write_summary_tree(tree: Node, file: TextIO) -> None:
    """Write the text of ``…_SUMMARY.json``: the tree without any key ``value`` in inputs and outputs."""
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
    """Return inputs or outputs without the key ``value`` in any mapping."""
    top: list[Any] = [content]
    pending: list[Any] = [top]
    while pending:
        container = pending.pop()
        for key, inner in enumerate(container) if type(container) is list else container.items():
            if type(inner) is str:
                continue
            if isinstance(inner, dict):
                container[key] = copy = _without_value(inner)
                pending.append(copy)
            elif isinstance(inner, (list, tuple)):
                container[key] = items = list(inner)
                pending.append(items)
    return top[0]


def _without_value(content: Node) -> Node:
    rest: Node = {}  # keys that are equal in JSON become one, as in transformers, which reads its own JSON back
    for key, inner in content.items():
        text = key if type(key) is str else deep_json.json_key(key)
        if text != "value":
            rest[text] = inner
    return rest

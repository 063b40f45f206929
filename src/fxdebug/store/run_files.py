"""The files of a run: ``trace.json`` and the standard tree. Writing them needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.store.trace_json import trace_file
from fxdebug.store.trace_json.records import WrittenValues
from fxdebug.store.transformers import json_text, write_tree
from fxdebug.store.transformers.file_names import LONGEST, Names, ignores_case, safe_name
from fxdebug.store.transformers.printed_statistics import words_of


class _Files(Protocol):
    """Where each value lies in a file of its own (``tensors.Files``)."""

    def name(self, value: Value) -> str | None: ...


def standard_names(model: str) -> tuple[str, str]:
    """The reference's two file names for a model class; a class name too long for one is shortened."""
    suffixes = "_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json"
    longest = LONGEST - len(".999")
    if len((model + suffixes[0]).encode()) > longest:
        model = safe_name(model, "." * (LONGEST - longest + len(suffixes[0]))).rstrip(".")
    full, summary = (safe_name(model, suffix) for suffix in suffixes)
    return full, summary


def write_run(
    trace: TraceData,
    folder: Path,
    *,
    prune: bool,
    shards: Mapping[str, str] | None = None,
    written: WrittenValues | None = None,
) -> list[str]:
    """Write ``trace.json`` and the standard tree of a run into a folder; return the file names.

    ``…_FULL_TENSORS.json`` is written where its values are known: printed, or saved as tensors.
    ``shards``: new names of the files with the tensors, where they have moved. ``written``: what the run's journal
    has of its values.
    """
    full_name, summary_name = standard_names(trace.model)
    names = []
    content = _content(trace, shards or {})
    tree = write_tree.standard_tree(trace, _entry(trace, content), prune=prune)
    if content is not None:
        with _text_file(folder / full_name) as file:
            json_text.write_full(tree, file)
        names.append(full_name)
    with _text_file(folder / summary_name) as file:
        json_text.write_summary(tree, file)
    with _text_file(folder / trace_file.FILE) as file:
        trace_file.write(trace, file, shards or {}, written=written)
    return [*names, summary_name, trace_file.FILE]


def _text_file(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", buffering=1 << 18)


def _content(trace: TraceData, shards: Mapping[str, str]) -> Callable[[Value, str], Any] | None:
    """What stands under ``value`` in the full tree, or ``None`` if there is nothing to put there."""
    if any(value.saved for value in trace.values):
        return lambda value, path: value.saved and f"./{trace_file.moved(value.saved, shards)}"
    data = trace.data
    if data is None or not any(data.lines(value) is not None for value in trace.values[:64]):
        return None
    return lambda value, path: json_text.Lines(lambda: data.lines(value) or [])


def _entry(trace: TraceData, content: Callable[[Value, str], Any] | None) -> write_tree.Entry:
    data, settings = trace.data, trace.settings
    precision, default = int(settings.get("precision", 4)), str(settings.get("default_dtype", "float32"))

    known: dict[int, tuple[write_tree.Node, write_tree.Node]] = {}  # by value: most stand in the tree several times

    def entry(value: Value, path: str) -> write_tree.Node:
        if value.number not in known:
            words = data.printed(value) if data is not None else None
            numbers = write_tree.statistics(words or words_of(value, precision, default))
            known[value.number] = write_tree.described(value), numbers
        described, numbers = known[value.number]
        if content is None:
            return {**described, **numbers}
        return {**described, "value": content(value, path), **numbers}

    return entry


def write_standard(
    trace: TraceData, folder: Path, *, prune: bool, files: _Files | None
) -> tuple[list[str], dict[str, str]]:
    """Write just the reference's JSON files; return their names, and those of its tensors.

    With ``files`` each tensor that the tree shows gets the reference's name for the value's one file, which may have
    several; what the tree does not show stays behind.
    """
    full_name, summary_name = standard_names(trace.model)
    if files is None:
        content = _content(trace, {}) or (lambda value, path: [])
    else:
        content = _Reference
    tree = write_tree.standard_tree(trace, _entry(trace, content), prune=prune)
    links: dict[str, str] = {}
    if files is not None:
        names = Names(ignores_case(folder))
        for name in (full_name, summary_name):
            names.take(Path(name).stem, ".json")
        links = _named(tree, names, files)
    for name, write in ((full_name, json_text.write_full), (summary_name, json_text.write_summary)):
        with _text_file(folder / name) as file:
            write(tree, file)
    return [full_name, summary_name], links


class _Reference:
    """Stands in the tree where a file name will."""

    def __init__(self, value: Value, path: str) -> None:
        self.value = value
        self.path = path


def _named(root: write_tree.Node, names: Names, files: _Files) -> dict[str, str]:
    """Give every reference left in the tree its file name, in the order in which they stand there: names and files.

    A value whose data could not be written (a meta tensor has none) becomes ``null``.
    """
    links: dict[str, str] = {}
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            reference = node.get("value")
            if isinstance(reference, _Reference):
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

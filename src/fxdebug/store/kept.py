"""What one run keeps besides numbers: printed text, tensors, and the files made of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from fxdebug.store import json_tree, load, tensors
from fxdebug.store.folder import Workplace
from fxdebug.store.names import LONGEST, Names, ignores_case, safe_name
from fxdebug.store.printed import Printer
from fxdebug.store.saved import Words
from fxdebug.trace import Trace
from fxdebug.values import Value


class _Bodies(Protocol):
    def keep(self, value: Value, body: Tensor) -> None: ...


class Kept:
    """Takes each new value of a run while it is at hand, and answers for its data afterwards.

    ``text``: its printed form (for ``use_repr=True``); ``bodies``: where its data goes; ``words``: its
    four statistics as the reference prints them. All of it lies in ``place`` until it is published.
    """

    def __init__(
        self, place: Workplace, *, text: bool = False, words: bool = True, bodies: _Bodies | None = None
    ) -> None:
        self.place = place
        self.bodies = bodies
        self.printer = Printer(120 if text else None)
        self._with_words = words
        self.words: dict[int, Words] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self._spool = (place.path / "text.spool").open("w+b", buffering=1 << 20) if text else None
        if self._spool is not None:
            weakref.finalize(self, self._spool.close)
        self._end = 0
        self._broken: OSError | None = None

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if self._with_words:
            with contextlib.suppress(Exception):  # sparse, nested: the tree then has our own numbers
                words = self.printer.statistics(local)
                if words is not None:
                    self.words[value.number] = words
        if self._spool is not None:
            self._print(value, local)
        if self.bodies is not None and body is not None:
            self.bodies.keep(value, body)

    def _print(self, value: Value, tensor: Tensor) -> None:
        assert self._spool is not None
        lines = self.printer.lines(tensor)
        data = "\n".join(lines).encode("utf-8", "surrogatepass")
        try:
            self._spool.write(data)
        except OSError as error:  # a full disk: told when the text is asked for, not to the model
            self._broken = self._broken or error
        self._spans[value.number] = (self._end, len(data))
        self._end += len(data)

    def lines(self, value: Value) -> list[str] | None:
        """The printed form of a value, read back from disk; ``None`` if it was not printed."""
        span = self._spans.get(value.number)
        if span is None or self._spool is None:
            return None
        if self._broken is not None:
            raise self._broken
        self._spool.flush()
        self._spool.seek(span[0])
        data = self._spool.read(span[1]).decode("utf-8", "surrogatepass")
        self._spool.seek(0, os.SEEK_END)
        return data.split("\n")

    def printed(self, value: Value) -> Words | None:
        """Mean, std, min and max in the reference's arithmetic and letters."""
        return self.words.get(value.number)

    def tensor(self, value: Value) -> Any:
        """The data of a value."""
        return tensors.read(self.place.path, value)


# Files -------------------------------------------------------------------------------------------


def standard_names(model: str) -> tuple[str, str]:
    """The reference's two file names for a model class; a class name too long for one is shortened."""
    suffixes = "_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json"
    longest = LONGEST - len(".999")
    if len((model + suffixes[0]).encode()) > longest:
        model = safe_name(model, "." * (LONGEST - longest + len(suffixes[0]))).rstrip(".")
    full, summary = (safe_name(model, suffix) for suffix in suffixes)
    return full, summary


def write_run(trace: Trace, folder: Path, *, prune: bool, shards: Mapping[str, str] | None = None) -> list[str]:
    """Write ``trace.json`` and the standard tree of a run into a folder; return the file names.

    ``…_FULL_TENSORS.json`` is written where its values are known: printed, or saved as tensors.
    ``shards``: new names of the files with the tensors, where they have moved.
    """
    full_name, summary_name = standard_names(trace.model)
    names = []
    content = _content(trace, shards or {})
    if content is not None:
        tree = json_tree.standard_tree(trace, _entry(trace, content), prune=prune)
        with (folder / full_name).open("w", encoding="utf-8") as file:
            json_tree.write_full(tree, file)
        names.append(full_name)
    tree = json_tree.standard_tree(trace, _entry(trace, None), prune=prune)
    with (folder / summary_name).open("w", encoding="utf-8") as file:
        json_tree.write_summary(tree, file)
    with (folder / load.FILE).open("w", encoding="utf-8") as file:
        load.write(trace, file, shards or {})
    return [*names, summary_name, load.FILE]


def _content(trace: Trace, shards: Mapping[str, str]) -> Callable[[Value, str], Any] | None:
    """What stands under ``value`` in the full tree, or ``None`` if there is nothing to put there."""
    if any(value.saved for value in trace.values):
        return lambda value, path: value.saved and f"./{load.moved(value.saved, shards)}"
    data = trace.data
    if data is None or not any(data.lines(value) is not None for value in trace.values[:64]):
        return None
    return lambda value, path: json_tree.Lines(lambda: data.lines(value) or [])


def _entry(trace: Trace, content: Callable[[Value, str], Any] | None) -> json_tree.Entry:
    data, settings = trace.data, trace.settings
    precision, default = int(settings.get("precision", 4)), str(settings.get("default_dtype", "float32"))

    def entry(value: Value, path: str) -> json_tree.Node:
        words = data.printed(value) if data is not None else None
        node = json_tree.described(value)
        if content is not None:
            node["value"] = content(value, path)
        return node | json_tree.statistics(words or json_tree.words_of(value, precision, default))

    return entry


def write_standard(trace: Trace, folder: Path, target: Path, *, prune: bool, files: tensors.Files | None) -> list[str]:
    """Write just the reference's files; return their names.

    With ``files`` each tensor that the tree shows gets the reference's name, as a hard link to the
    value's one file where the file system has those; what the tree does not show stays behind.
    """
    full_name, summary_name = standard_names(trace.model)
    if files is None:
        content = _content(trace, {}) or (lambda value, path: [])
    else:
        content = _Reference
    tree = json_tree.standard_tree(trace, _entry(trace, content), prune=prune)
    links: dict[str, Value] = {}
    if files is not None:
        names = Names(ignores_case(folder))
        for name in (full_name, summary_name):
            names.take(Path(name).stem, ".json")
        links = _named(tree, names, files)
        for name, value in links.items():
            _link(files.path(value), folder / name)
    for name, write in ((full_name, json_tree.write_full), (summary_name, json_tree.write_summary)):
        with (folder / name).open("w", encoding="utf-8") as file:
            write(tree, file)
    return [*links, full_name, summary_name]


class _Reference:
    """Stands in the tree where a file name will."""

    def __init__(self, value: Value, path: str) -> None:
        self.value = value
        self.path = path


def _named(root: json_tree.Node, names: Names, files: tensors.Files) -> dict[str, Value]:
    """Give every reference left in the tree its file name, in the order in which they stand there.

    A value whose data could not be written (a meta tensor has none) becomes ``null``.
    """
    links: dict[str, Value] = {}
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            reference = node.get("value")
            if isinstance(reference, _Reference) and not files.path(reference.value).exists():
                node["value"] = None
            elif isinstance(reference, _Reference):
                name = names.take(reference.path.removesuffix(".safetensors"), ".safetensors")
                node["value"] = f"./{name}"
                links[name] = reference.value
            else:
                pending.extend(reversed(list(node.values())))
        elif isinstance(node, list):
            pending.extend(reversed(node))
    return links


def _link(source: Path, name: Path) -> None:
    try:
        os.link(source, name)
    except OSError:  # no hard links here, or too many
        shutil.copyfile(source, name)

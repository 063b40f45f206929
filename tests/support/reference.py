"""What transformers' debugger writes, and whether we write the same, letter for letter.

``of_reference``, ``of_drop_in`` and ``of_fx_debug`` run a model and collect the files; ``differences``
says where two such results are not what they should be. ``tests/parity.py`` does it for a zoo entry.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._tensor_str import get_printoptions

import fxdebug

Build = Callable[[], Any]  # makes (model, keyword arguments) anew

_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-fX]+")
_FILE = re.compile(r'"\./((?:[^"\\]|\\.)*)\.safetensors"')


# Running -----------------------------------------------------------------------------------------


@dataclass
class Written:
    """The files a run left in its folder, and what it raised."""

    files: dict[str, bytes] = field(default_factory=dict)
    error: BaseException | None = None

    def trees(self) -> dict[str, str]:
        """The text of the JSON files by name, memory addresses replaced."""
        return {name: without_addresses(data.decode()) for name, data in self.files.items() if name.endswith(".json")}

    def tensors(self) -> dict[str, bytes]:
        """The other files."""
        return {name: data for name, data in self.files.items() if not name.endswith(".json")}


def without_addresses(text: str) -> str:
    """Text that is the same in two runs of one process."""
    return _ADDRESS.sub("at 0xX", text)


def of_reference(build: Build, *, prune: bool, use_repr: bool) -> Written:
    """What transformers' context writes."""
    from transformers.model_debugging_utils import model_addition_debugger_context

    return written(build, lambda model, path: model_addition_debugger_context(model, path, prune, use_repr))


def of_drop_in(build: Build, *, prune: bool, use_repr: bool) -> Written:
    """What ours writes."""
    context = fxdebug.model_addition_debugger_context
    return written(build, lambda model, path: context(model, path, prune, use_repr))


def of_fx_debug(build: Build, *, values: str, prune: bool, inside: str = "") -> Written:
    """The standard files among those that ``fx_debug`` writes; ``inside``: the folder of this rank, if it has one."""
    found = Written()

    def call(model: Any, inputs: dict[str, Any], path: str) -> None:
        fxdebug.fx_debug(model, inputs, values=values, save=path, prune=prune)
        found.files = {f.name: f.read_bytes() for f in sorted(Path(path, inside).glob("*_debug_tree_*"))}

    found.error = _written(build, call).error
    return found


def written(build: Build, context: Callable[[Any, str], Any]) -> Written:
    """The files of one forward in a context manager that is given the model and a new folder."""

    def call(model: Any, inputs: dict[str, Any], path: str) -> None:
        with context(model, path):
            model(**inputs)

    return _written(build, call)


def _written(build: Build, call: Callable[[Any, dict[str, Any], str], None]) -> Written:
    found = Written()
    with tempfile.TemporaryDirectory() as path, _unharmed():
        model, inputs = build()
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                call(model, inputs, path)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # printing a tensor holds a guard that vmap must not meet
            found.error = error.with_traceback(None)
            found.error.__context__ = None
        found.files = {file.name: file.read_bytes() for file in sorted(Path(path).iterdir()) if file.is_file()}
    return found


@contextlib.contextmanager
def _unharmed() -> Iterator[None]:
    """Random numbers, print options and ``sys.stdout`` as before: the reference leaves the last two changed."""
    options, stdout = get_printoptions(), sys.stdout
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            torch.set_printoptions(**options)
            sys.stdout = stdout


# Comparing ---------------------------------------------------------------------------------------


def differences(theirs: Written, ours: Written, *, shared: frozenset[str] = frozenset()) -> list[str]:
    """Where our files are not what the reference's should be, in words; empty if nowhere.

    The JSON must be equal letter for letter, but for one thing: a file name that the reference gives to
    several tensors has a number from the second on. The tensors' files must be those the JSON
    names, and equal byte for byte; of several tensors with one name the reference keeps the last.
    ``shared``: names it also gave to tensors that are not in the JSON, whose file may hold any of them.
    """
    if ours.error is not None:
        return [f"raises {type(ours.error).__name__}: {ours.error}"]
    trees = {name: numbered(text) for name, text in theirs.trees().items()}
    return unequal_trees(trees, ours.trees()) or _unequal_tensors(theirs, ours, shared)


def unequal_trees(theirs: dict[str, str], ours: dict[str, str]) -> list[str]:
    """Where the texts of two sets of files differ: the first line of each file that does."""
    if theirs.keys() != ours.keys():
        return [f"files {sorted(ours)} instead of {sorted(theirs)}"]
    found = []
    for name, text in theirs.items():
        if text != ours[name]:
            found.append(f"{name}: {_first_difference(text.split(chr(10)), ours[name].split(chr(10)))}")
    return found


def _first_difference(theirs: list[str], ours: list[str]) -> str:
    for number, (a, b) in enumerate(zip(theirs, ours), 1):
        if a != b:
            return f"line {number} is {b.strip()!r} instead of {a.strip()!r}"
    return f"{len(ours)} lines instead of {len(theirs)}"


def numbered(tree: str) -> str:
    """The reference's JSON with each tensor's file under a name of its own."""
    taken: set[str] = set()

    def name(match: re.Match[str]) -> str:
        free, number = match.group(1), 1
        while free in taken:
            number += 1
            free = f"{match.group(1)}-{number}"
        taken.add(free)
        return f'"./{free}.safetensors"'

    return _FILE.sub(name, tree)


def tensor_files(written: Written) -> list[str]:
    """The tensors' files that the full tree names, in order, as often as it does."""
    full = next((text for name, text in written.trees().items() if "FULL_TENSORS" in name), "")
    return [json.loads(f'"{name}.safetensors"') for name in _FILE.findall(full)]


def repeated(names: list[str]) -> frozenset[str]:
    """The names that occur more than once."""
    return frozenset(name for name in names if names.count(name) > 1)


def _unequal_tensors(theirs: Written, ours: Written, shared: frozenset[str]) -> list[str]:
    mine, wanted = ours.tensors(), tensor_files(ours)
    if sorted(mine) != sorted(wanted):
        return [f"tensor files that the tree does not name, or lacks: {sorted(set(mine) ^ set(wanted))}"]
    last: dict[str, str] = {}
    for name, own in zip(tensor_files(theirs), wanted):
        last[name] = own
    unequal = [own for name, own in last.items() if name not in shared and theirs.files[name] != mine[own]]
    return [f"{name}: other bytes" for name in unequal]

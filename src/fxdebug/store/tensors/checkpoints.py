"""Weights in checkpoint files: safetensors, alone, in parts or in a folder, and ``.pt`` files of tensors alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fxdebug.errors import LoadError, with_article
from fxdebug.files.read_file import read_text, require_readable, require_regular
from fxdebug.files.system_errors import system_errors_told

Weights = Mapping[str, Callable[[], Tensor]]
"""A function for each weight, by its name, that reads it: only one is in memory at a time."""


class NestedWeights(dict[str, Callable[[], Tensor]]):
    """Weights that stand under a key of their file, as ``{"epoch": 5, "net": {…}}`` has them: ``under`` is that key."""

    under = ""


DEEP = 3  # keys, one in the other, under which weights are looked for
PICKLES = (".pt", ".pth", ".bin", ".ckpt")


def read_checkpoint(path: Path, known: Collection[str] = ()) -> Weights:
    """Return the weights of a ``.safetensors`` or ``.pt`` file, or of a folder with such files, by name.

    Of a file that nests several (a net, its average, the moments of its optimizer), those are read that have the most
    names of ``known``, else the usual key, else the most weights.

    Of a folder the parts that its ``*.index.json`` names are read, else every ``.safetensors`` file in it. Pickles are
    read with ``weights_only``: nothing in them runs. Raises ``LoadError`` for files that hold no weights.
    """
    if path.is_dir():
        return _of_folder(path)
    require_regular(path)
    if path.suffix == ".safetensors":
        return _of_safetensors(path)
    if path.suffix in PICKLES:
        return _of_pickle(path, known)
    raise LoadError(f"{path} is no checkpoint: give a .safetensors or {', '.join(PICKLES)} file, or a folder with some")


def _of_folder(folder: Path) -> Weights:
    weights: dict[str, Callable[[], Tensor]] = {}
    for file in _files_of(folder):
        found = _of_safetensors(file) if file.suffix == ".safetensors" else _of_pickle(file)
        twice = weights.keys() & found.keys()
        if twice:
            raise LoadError(f"{file}: {min(twice)!r} is in another file of {folder}, too")
        weights.update(found)
    return weights


def _files_of(folder: Path) -> list[Path]:
    index = next(iter(sorted(folder.glob("*.index.json"))), None)
    if index is None:
        files = sorted(folder.glob("*.safetensors")) or [f for s in PICKLES[:3] for f in sorted(folder.glob(f"*{s}"))]
    else:
        files = [folder / part for part in sorted(_parts_of(index))]  # links, in a cache of the hub
    if not files:
        raise LoadError(f"{folder} has no .safetensors file and no .pt file: is it a folder with a checkpoint?")
    for file in files:
        require_regular(file)
    return files


def _parts_of(index: Path) -> set[str]:
    require_regular(index)
    try:
        table = json.loads(read_text(index, "the index of a checkpoint"))["weight_map"]
        parts = set(table.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LoadError(f"{index} is no index of a checkpoint: {type(error).__name__}: {error}") from None
    if not all(isinstance(part, str) and part == Path(part).name for part in parts):
        raise LoadError(f"{index}: weight_map names parts that are no files beside it")
    return parts


def _of_safetensors(path: Path) -> Weights:
    require_readable(path)
    try:
        with system_errors_told(path), safe_open(path, framework="pt") as file:  # type: ignore[no-untyped-call]
            names = list(file.keys())
    except SafetensorError as error:
        raise LoadError(f"{path} is no safetensors file: {error}") from None
    return {name: partial(_read, path, name) for name in names}


def _read(path: Path, name: str) -> Tensor:
    require_readable(path)
    try:
        with system_errors_told(path), safe_open(path, framework="pt") as file:  # type: ignore[no-untyped-call]
            tensor: Tensor = file.get_tensor(name)
    except (SafetensorError, KeyError) as error:
        raise LoadError(f"{path}: {name!r} cannot be read: {error}") from None
    return tensor


def _of_pickle(path: Path, known: Collection[str] = ()) -> Weights:
    try:
        with system_errors_told(path, "or save the weights as .safetensors, which are read one at a time"):
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except LoadError:
        raise
    except Exception as error:  # torch raises whatever the damage leads to
        raise LoadError(f"{path} cannot be read as weights alone: {type(error).__name__}: {error}") from None
    if not isinstance(content, Mapping):
        raise LoadError(f"{path} holds {with_article(type(content).__name__)}, and no weights by name")
    under, weights = max(
        _nested(content),
        key=lambda one: (len(one[1].keys() & set(known)), one[0].rpartition(".")[2] in USUAL, len(one[1])),
        default=("", {}),
    )
    found = NestedWeights({name: partial(_same, tensor) for name, tensor in weights.items()})
    found.under = under
    return found


USUAL = ("state_dict", "model")  # the keys that weights stand under


def _nested(content: Mapping[Any, Any], key: str = "", deep: int = 0) -> list[tuple[str, dict[str, Tensor]]]:
    """Return the weights in a mapping and in those that it nests, each with its key."""
    here = {name: one for name, one in content.items() if isinstance(name, str) and isinstance(one, Tensor)}
    found = [(key, here)] if here else []
    for name, one in content.items():
        if isinstance(name, str) and isinstance(one, Mapping) and deep < DEEP:
            found += _nested(one, f"{key}.{name}" if key else name, deep + 1)
    return found


def _same(tensor: Tensor) -> Tensor:
    return tensor

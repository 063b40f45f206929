"""Runs on disk: ``load`` and ``save_golden``."""

from __future__ import annotations

import os
from pathlib import Path

from fxdebug.api.trace import Trace
from fxdebug.data.trace import TraceData, replaced
from fxdebug.errors import LoadError
from fxdebug.store.rank_folders import rank_folder
from fxdebug.store.run_folder import WORKING
from fxdebug.store.tensors.saved_values import Saved
from fxdebug.store.trace_json import golden, journal, trace_file
from fxdebug.store.transformers import read_tree


def load(path: str | os.PathLike[str], *, rank: int | None = None) -> Trace:
    """Read a saved run: a folder, or one ``trace.json``. Needs neither the model nor torch.

    A standard tree (``…_debug_tree_FULL_TENSORS.json`` or ``…_SUMMARY.json``, also one that transformers wrote) is
    read as far as it goes, and so is a folder with nothing else in it. ``rank`` picks one of a distributed run. A
    folder that holds only an unfinished run gives what it left. Raises ``LoadError`` naming the path for anything
    that is not a run.
    """
    return Trace.of(_read(Path(path), rank))


def _read(place: Path, rank: int | None) -> TraceData:
    if rank is not None:
        place = rank_folder(place, rank)
    if place.is_file():
        if read_tree.is_tree(place):
            return read_tree.read(place)
        return trace_file.read(place)
    if (place / trace_file.FILE).exists():
        return trace_file.read(place / trace_file.FILE)
    if not place.exists():
        raise LoadError(f"{place} does not exist")
    ranks = sorted(p.name for p in place.glob("rank-*"))
    if ranks:
        raise LoadError(f"{place} is a run of {len(ranks)} ranks: load one with rank=0 … rank={len(ranks) - 1}")
    left = sorted(p.parent for p in place.glob(f"{WORKING}*/{journal.FILE}"))
    if left:
        trace = journal.recovered(left[-1])
        return replaced(trace, data=Saved((trace.folder or place).absolute()))
    tree = read_tree.find(place)
    if tree is None:
        raise LoadError(f"{place} holds no {trace_file.FILE}: it is not a run saved by fxdebug")
    return read_tree.read(tree)


def save_golden(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write what a later run is compared with to one small file, ``.json`` or ``.json.gz``; return its path.

    Statistics, graphs and, of a run with ``values="samples"``, a few elements of every value: nothing that differs
    from one time to the next. ``load``, ``compare`` and ``fxdebug show`` read it. Raises ``SaveError``.

    >>> import torch, tempfile
    >>> from fxdebug import compare, fx_debug
    >>> model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     golden = save_golden(fx_debug(model, x, values="samples"), folder + "/linear.json")
    ...     compare(golden, fx_debug(model, x, values="samples")).equal
    True
    """
    return golden.write(trace, Path(path))

"""``load`` and ``save_golden``: runs on disk."""

from __future__ import annotations

import os
from pathlib import Path

from fxdebug.api.trace import Trace
from fxdebug.data.trace import TraceData, replaced
from fxdebug.errors import LoadError
from fxdebug.store.rank_folders import rank_folder, refuse_several_ranks
from fxdebug.store.staging_folder import STAGING_PREFIX
from fxdebug.store.tensors.saved_data import SavedData
from fxdebug.store.trace_json import golden, journal, trace_file
from fxdebug.store.transformers import read_tree


def load(path: str | os.PathLike[str], *, rank: int | None = None) -> Trace:
    """Read a saved run: a folder, a ``trace.json`` or a golden file. Needs neither the model nor torch.

    A debug tree of transformers (``…_debug_tree_FULL_TENSORS.json`` or ``…_SUMMARY.json``), or a folder with nothing
    but such a tree, gives a trace with as much as the tree holds. ``rank`` chooses a rank of a distributed run. From a
    folder with only an unfinished run, the finished part is read. Raises ``LoadError`` with the path for anything that
    is not a run.
    """
    return Trace.of(_read(Path(path), rank))


def _read(path: Path, rank: int | None) -> TraceData:
    if rank is not None:
        path = rank_folder(path, rank)
    if path.is_file():
        if read_tree.is_tree(path):
            return read_tree.read_tree_file(path)
        return trace_file.read(path)
    if (path / trace_file.FILE).exists():
        return trace_file.read(path / trace_file.FILE)
    if not path.exists():
        raise LoadError(f"{path} does not exist")
    refuse_several_ranks(path)
    left = sorted(p.parent for p in path.glob(f"{STAGING_PREFIX}*/{journal.FILE}"))
    if left:
        trace = journal.recover_trace(left[-1])
        return replaced(trace, data=SavedData((trace.folder or path).absolute()))
    tree = read_tree.find_tree(path)
    if tree is None:
        raise LoadError(f"{path} holds no {trace_file.FILE}: it is not a run saved by fxdebug")
    return read_tree.read_tree_file(tree)


def save_golden(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write a golden trace for later comparisons: one small file, ``.json`` or ``.json.gz``; return its path.

    It holds statistics, graphs and, for a run with ``values="samples"``, a few elements of every value, but nothing
    that differs from one run to the next. ``load``, ``compare`` and ``fxdebug show`` read it. Raises ``SaveError``.

    >>> import torch, tempfile
    >>> from fxdebug import compare, fx_debug
    >>> model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     golden = save_golden(fx_debug(model, x, values="samples"), folder + "/linear.json")
    ...     compare(golden, fx_debug(model, x, values="samples")).equal
    True
    """
    return golden.write(trace, Path(path))

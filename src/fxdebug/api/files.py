"""``load`` and ``save_golden``: runs on disk."""

from __future__ import annotations

import os
from pathlib import Path

from fxdebug.api.trace import Trace
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.data.trace import TraceData, replaced
from fxdebug.errors import LoadError, UsageError, with_article
from fxdebug.files.read_file import require_inside
from fxdebug.store import measures_file, save_run
from fxdebug.store.rank_folders import rank_folder, refuse_several_ranks, require_rank
from fxdebug.store.staging_folder import STAGING_PREFIX
from fxdebug.store.tensors.saved_data import SavedData
from fxdebug.store.trace_json import golden, journal, trace_file
from fxdebug.store.transformers import read_tree


def load(path: str | os.PathLike[str], *, rank: int | None = None) -> Trace:
    """Read a saved run: a folder, a ``trace.json`` or a golden file. Needs neither the model nor torch.

    A debug tree of transformers (``…_debug_tree_FULL_TENSORS.json`` or ``…_SUMMARY.json``), or a folder with nothing
    but such a tree, gives a trace with as much as the tree holds. ``rank`` chooses a rank of a distributed run. From a
    folder with only an unfinished run, the finished part is read. Raises ``LoadError`` with the path for anything that
    is not a run, and ``UsageError`` for what is no path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(
            f"a run is read from the path of its folder or file, not from {with_article(type(path).__name__)}"
        )
    with collect_less_often.block():
        return Trace.of(_read(Path(path), rank))


def _read(path: Path, rank: int | None) -> TraceData:
    if rank is not None:
        require_rank(path, rank)
        inside = rank_folder(path, rank)
        require_inside(inside, path)
        path = inside
    try:
        if path.is_dir():
            return _read_folder(path)
        if not os.path.lexists(path):
            raise LoadError(f"{path} does not exist")
        return read_tree.read_tree_file(path) if read_tree.is_tree(path) else _read_trace(path)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _read_folder(folder: Path) -> TraceData:
    """Return the run in a folder: nothing outside it is read."""
    whole = folder / trace_file.FILE
    if os.path.lexists(whole):
        require_inside(whole, folder)
        return _read_trace(whole)
    refuse_several_ranks(folder)
    left = list(folder.glob(f"{STAGING_PREFIX}*/{journal.FILE}"))
    if left:
        newest = max(left, key=lambda path: path.lstat().st_mtime_ns).parent
        require_inside(newest, folder)
        trace = journal.recover_trace(newest)
        return replaced(trace, data=SavedData((trace.folder or folder).absolute()))
    tree = read_tree.find_tree(folder)
    if tree is None:
        raise LoadError(f"{folder} holds no {trace_file.FILE}: it is not a run saved by fxdebug")
    require_inside(tree, folder)
    return read_tree.read_tree_file(tree)


def _read_trace(path: Path) -> TraceData:
    """Return the run in a file, with the measures that were saved beside it."""
    trace = trace_file.read(path)
    if not path.name.startswith("trace."):
        return trace
    return measures_file.with_saved_measures(trace, measures_file.path_beside(path))


def save_measures(trace: Trace) -> Path:
    """Write the measures of a saved run beside its ``trace.json``, and nothing else; return the path.

    Raises ``UsageError`` for a run that was not saved, ``SaveError`` where the file cannot be written.

    >>> import torch, fxdebug, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2), save=folder)
    ...     path = save_measures(trace.with_measures(fxdebug.flops(trace)))
    ...     path.name, list(fxdebug.load(folder).taken)
    ('measures.json', ['flops', 'flops.self', 'flops.backward'])
    """
    if trace.folder is None or not (trace.folder / trace_file.FILE).exists():
        raise UsageError("this run was not saved: write it with trace.save(folder), measures included")
    return save_run.save_measures(trace, trace.folder)


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

"""``load`` and ``save_measures``: runs on disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fxdebug.api.trace import Trace
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.data.trace import TraceData, replaced
from fxdebug.errors import FxDebugError, LoadError, UsageError, first_line, with_article
from fxdebug.files.read_file import require_inside
from fxdebug.files.what_lies_below import told_below
from fxdebug.plugins.feature import OURS
from fxdebug.plugins.features import features, part
from fxdebug.plugins.given import RunFiles
from fxdebug.plugins.installed import FAILURES
from fxdebug.store import measures_file, save_run
from fxdebug.store.rank_folders import rank_folder, refuse_several_ranks, require_rank
from fxdebug.store.staging_folder import STAGING_PREFIX
from fxdebug.store.tensors.saved_data import SavedData
from fxdebug.store.trace_json import journal, trace_file


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
        return _of_feature(path) or _read_trace(path)
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
    other = _of_feature(folder)
    if other is None:
        below = told_below(folder, (trace_file.FILE,), "runs")
        raise LoadError(f"{folder} holds no {trace_file.FILE}: {below or 'it is not a run saved by fxdebug'}")
    return other


def _of_feature(path: Path) -> TraceData | None:
    """Return the run in a file of another program, or in a folder that has one; ``None`` where no feature reads it.

    A feature of another package that fails is left out until it has found a file of its own.
    """
    for feature in features():
        caught = () if feature.package == OURS else FAILURES
        kind: RunFiles | None = part(feature, feature.opens)
        file: Path | None = None
        if kind is not None:
            with suppress(*caught):
                file = kind.find(path) if path.is_dir() else path if kind.is_one(path) else None
        if kind is None or file is None:
            continue
        if path.is_dir():
            require_inside(file, path)
        try:
            return kind.read(file)
        except FxDebugError:
            raise
        except caught as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            raise LoadError(f"{file} cannot be read by {feature.package}: {why}") from error
    return None


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

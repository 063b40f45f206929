"""Write the files of a run (``trace.json`` and the debug tree), and save a trace to a folder after its run.

Neither needs torch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.errors import LoadError, SaveError
from fxdebug.files.read_file import require_inside, require_regular
from fxdebug.files.write_file import write_text
from fxdebug.store import measures_file
from fxdebug.store.private import is_private, without_private
from fxdebug.store.publish_run import add_to_published, next_shard, publish, publishing_to
from fxdebug.store.rank_folders import rank_folder
from fxdebug.store.staging_folder import StagingFolder
from fxdebug.store.trace_json import trace_file
from fxdebug.store.trace_json.records import ValueRowCache
from fxdebug.store.transformers.tree_files import open_text, write_tree_files


def save_trace(trace: TraceData, folder: str | os.PathLike[str], *, private: bool = False) -> Path:
    """Write a trace to a folder, with the debug tree and the tensors that were kept; return the folder.

    A trace of a distributed run goes into its rank's folder inside, as with ``fx_debug(save=…)``: every rank may save
    to the same place. ``private``: without the texts that :mod:`fxdebug.store.private` names. Raises
    :class:`SaveError`.
    """
    model = trace.root
    if private or is_private(trace):  # measures may have been attached since
        trace = without_private(trace)
    target = rank_folder(Path(folder), trace.settings.get("rank"))
    staging = StagingFolder(target)
    try:
        with publishing_to(target):
            shards = _shards_to_copy(trace, target)
            for old, new in shards.items():
                require_inside(old, old.parent)
                require_regular(old)
                shutil.copyfile(old, staging.path / new)
            renamed = {old.name: new for old, new in shards.items()}
            names = write_run(trace, staging.path, prune=bool(trace.settings.get("prune")), shards=renamed)
            publish(staging.path, target, [*shards.values(), *names], "trace", model)
    except SaveError:
        raise
    except LoadError as error:
        raise SaveError(f"cannot save to {target}: {error}") from error
    except OSError as error:
        raise SaveError(f"cannot save to {target}: {error.strerror or error}") from error
    finally:
        staging.close()
    return target


def save_measures(trace: TraceData, folder: Path) -> Path:
    """Write the measures of a trace beside the ``trace.json`` that is in a folder; return the path.

    Raises :class:`SaveError`.
    """
    path = folder / measures_file.FILE
    trace = without_private(trace) if is_private(trace) else trace
    with publishing_to(folder):
        try:
            write_text(path, measures_file.text_of(trace))
        except OSError as error:
            raise SaveError(f"cannot write {path}: {error.strerror or error}") from error
        add_to_published(folder, path.name)
    return path


def _shards_to_copy(trace: TraceData, target: Path) -> dict[Path, str]:
    """Return the files with the trace's tensors, and names for them that are free in the target."""
    staging = getattr(trace.data, "staging", None)
    source = trace.folder if trace.folder is not None else getattr(staging, "path", None)
    names = sorted({value.saved.partition("#")[0] for value in trace.values if value.saved})
    if source is None or not names or source.resolve() == target.resolve():
        return {}
    first = next_shard(target)
    return {source / name: f"tensors-{first + i:04d}.safetensors" for i, name in enumerate(names)}


def write_run(
    trace: TraceData,
    folder: Path,
    *,
    prune: bool,
    shards: Mapping[str, str] | None = None,
    rows: ValueRowCache | None = None,
) -> list[str]:
    """Write ``trace.json``, the measures taken and the debug tree of a run into a folder; return the file names.

    ``…_FULL_TENSORS.json`` is written only if values were printed or saved as tensors. ``shards``: old and new names of
    renamed tensor files. ``rows``: the JSON of values that the run's journal has made already.
    """
    names = write_tree_files(trace, folder, prune=prune, shards=shards or {})
    with open_text(folder / trace_file.FILE) as file:
        trace_file.write(trace, file, shards or {}, rows=rows)
    if trace.taken:
        write_text(folder / measures_file.FILE, measures_file.text_of(trace))
        names.append(measures_file.FILE)
    return [*names, trace_file.FILE]

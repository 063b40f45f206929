"""Writing a trace to a folder after its run, with the tensors that were kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.errors import SaveError
from fxdebug.store.publish_run import next_shard, publish, publish_lock
from fxdebug.store.rank_folders import rank_folder
from fxdebug.store.staging_folder import StagingFolder
from fxdebug.store.trace_json import trace_file
from fxdebug.store.trace_json.records import ValueRowCache
from fxdebug.store.transformers import tree_files, write_tree
from fxdebug.store.transformers.tree_files import open_text, tensor_content, tensor_entry, tree_file_names


def save_run(trace: TraceData, folder: str | os.PathLike[str]) -> Path:
    """Write a trace to a folder, with the standard tree and the tensors that were kept; return the folder.

    A trace of a distributed run goes to the folder of its rank in there, as with ``fx_debug(save=…)``:
    every rank may save to the same place.
    """
    target = rank_folder(Path(folder), trace.settings.get("rank"))
    place = StagingFolder(target)
    try:
        with publish_lock:
            shards = _shards_to_copy(trace, target)
            for old, new in shards.items():
                shutil.copyfile(old, place.path / new)
            moved = {old.name: new for old, new in shards.items()}
            names = write_run(trace, place.path, prune=bool(trace.settings.get("prune")), shards=moved)
            publish(place.path, target, [*shards.values(), *names], "trace", trace.root)
    except SaveError:
        raise
    except OSError as error:
        raise SaveError(f"cannot save to {target}: {error.strerror or error}") from error
    finally:
        place.close()
    return target


def _shards_to_copy(trace: TraceData, target: Path) -> dict[Path, str]:
    """The files with the trace's tensors, and their names in the target: numbers that are free there."""
    place = getattr(trace.data, "place", None)
    source = trace.folder if trace.folder is not None else getattr(place, "path", None)
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
    written: ValueRowCache | None = None,
) -> list[str]:
    """Write ``trace.json`` and the standard tree of a run into a folder; return the file names.

    ``…_FULL_TENSORS.json`` is written where its values are known: printed, or saved as tensors.
    ``shards``: new names of the files with the tensors, where they have moved. ``written``: what the run's journal
    has of its values.
    """
    full_name, summary_name = tree_file_names(trace.model)
    names = []
    content = tensor_content(trace, shards or {})
    tree = write_tree.debug_tree(trace, tensor_entry(trace, content), prune=prune)
    if content is not None:
        with open_text(folder / full_name) as file:
            tree_files.write_full_tree(tree, file)
        names.append(full_name)
    with open_text(folder / summary_name) as file:
        tree_files.write_summary_tree(tree, file)
    with open_text(folder / trace_file.FILE) as file:
        trace_file.write(trace, file, shards or {}, written=written)
    return [*names, summary_name, trace_file.FILE]

"""Writing a trace to a folder after its run, with the tensors that were kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.errors import SaveError
from fxdebug.store.rank_folders import rank_folder
from fxdebug.store.run_files import write_run
from fxdebug.store.run_folder import StagingFolder, next_shard, publish, publishing


def save(trace: TraceData, folder: str | os.PathLike[str]) -> Path:
    """Write a trace to a folder, with the standard tree and the tensors that were kept; return the folder.

    A trace of a distributed run goes to the folder of its rank in there, as with ``fx_debug(save=…)``:
    every rank may save to the same place.
    """
    target = rank_folder(Path(folder), trace.settings.get("rank"))
    place = StagingFolder(target)
    try:
        with publishing:
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

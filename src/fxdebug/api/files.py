"""Runs on disk: save, load, and the data of their tensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fxdebug.errors import LoadError, SaveError
from fxdebug.trace import Trace, replaced
from fxdebug.values import Value


def load(path: str | os.PathLike[str], *, rank: int | None = None) -> Trace:
    """Read a saved run: a folder, or one ``trace.json``. Needs neither the model nor torch.

    A standard tree (``…_debug_tree_FULL_TENSORS.json`` or ``…_SUMMARY.json``, also one that transformers wrote) is
    read as far as it goes, and so is a folder with nothing else in it. ``rank`` picks one of a distributed run. A
    folder that holds only an unfinished run gives what it left. Raises ``LoadError`` naming the path for anything
    that is not a run.
    """
    from fxdebug.store import journal, reference_tree
    from fxdebug.store import load as trace_file
    from fxdebug.store.folder import WORKING
    from fxdebug.store.saved import Saved

    place = Path(path)
    if rank is not None:
        place = rank_folder(place, rank)
    if place.is_file():
        if reference_tree.is_tree(place):
            return reference_tree.read(place)
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
    tree = reference_tree.find(place)
    if tree is None:
        raise LoadError(f"{place} holds no {trace_file.FILE}: it is not a run saved by fxdebug")
    return reference_tree.read(tree)


def rank_folder(folder: Path, rank: int | None) -> Path:
    """Where one rank's run lies in a folder; the folder itself for a run that has no rank."""
    return folder if rank is None or folder.name == f"rank-{rank}" else folder / f"rank-{rank}"


def save(trace: Trace, folder: str | os.PathLike[str]) -> Path:
    """Write a trace to a folder, with the standard tree and the tensors that were kept; return the folder.

    A trace of a distributed run goes to the folder of its rank in there, as with ``fx_debug(save=…)``:
    every rank may save to the same place.
    """
    import shutil

    from fxdebug.store.folder import Workplace, publish, publishing
    from fxdebug.store.run_files import write_run

    target = rank_folder(Path(folder), trace.settings.get("rank"))
    place = Workplace(target)
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
    from fxdebug.store import golden

    return golden.write(trace, Path(path))


def _shards_to_copy(trace: Trace, target: Path) -> dict[Path, str]:
    """The files with the trace's tensors, and their names in the target: numbers that are free there."""
    from fxdebug.store.folder import next_shard

    place = getattr(trace.data, "place", None)
    source = trace.folder if trace.folder is not None else getattr(place, "path", None)
    names = sorted({value.saved.partition("#")[0] for value in trace.values if value.saved})
    if source is None or not names or source.resolve() == target.resolve():
        return {}
    first = next_shard(target)
    return {source / name: f"tensors-{first + i:04d}.safetensors" for i, name in enumerate(names)}


def tensor(trace: Trace, value: Value) -> Any:
    """The data of a value as a ``torch.Tensor``, of the value's dtype and shape.

    Raises ``LoadError`` if the run did not keep it (``values="tensors"`` does).
    """
    if value.saved is None or trace.data is None:
        why = "run with values='tensors'"
        if trace.settings.get("values") == "tensors":
            why = "only what goes into and comes out of module calls is kept, and what has no data (meta) is not"
        raise LoadError(f"the data of value {value.number} ({value.label}) was not kept: {why}")
    return trace.data.tensor(value)

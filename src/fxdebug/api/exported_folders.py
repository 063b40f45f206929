"""A folder written for another program: one that a feature reads, or all ranks of a distributed run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fxdebug.api.files import load
from fxdebug.errors import LoadError
from fxdebug.exports import registry
from fxdebug.plugins.features import folder_kind
from fxdebug.store.rank_folders import ranks_in


def export_training(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], to: str | None = None, *, rank: int | None = None
) -> Path:
    """Write every step of a watched training, for the program ``to``, such as ``tensorboard``; return the path.

    ``folder`` is what :func:`fxdebug.watch` wrote, or still writes. Of a distributed training the lowest rank is
    written, without ``rank``. Raises ``LoadError`` for a folder without such a training, ``UsageError`` for a form that
    there is not. Folders of other features are written as well.
    """
    _, kind = folder_kind(Path(folder)) or ("", None)
    if kind is None or kind.read is None:
        raise LoadError(
            f"{os.fspath(folder)} holds no training.jsonl: fxdebug.watch(…, save=…) writes it, and fxdebug.load reads "
            "a run"
        )
    return registry.export(kind.exported, kind.read(Path(folder), rank), Path(path), to=to)


def shows_ranks(path: str | os.PathLike[str], to: str | None = None) -> bool:
    """Can the file that ``path`` or ``to`` asks for show several ranks of a run?

    >>> shows_ranks("run.pftrace"), shows_ranks("run.svg")
    (True, False)
    """
    form = registry.form_of("trace", Path(path), to)
    return "ranks" in registry.option_names(registry.exporter("trace", form))


def export_ranks(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], to: str | None = None, **options: Any
) -> Path:
    """Write all ranks of a distributed run, ``rank-0`` and so on in ``folder``, each as a process; return the path.

    Raises ``LoadError`` for a folder without such runs, ``UsageError`` for a form that shows one run.
    """
    first, *others = [load(folder, rank=rank) for rank in ranks_in(Path(folder))] or [load(folder)]
    return first.export(path, to, ranks=others, **options)

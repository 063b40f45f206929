"""A watched training written for another program, from the folder that it was saved to."""

from __future__ import annotations

import os
from pathlib import Path

from fxdebug.exports import registry
from fxdebug.store.training_file import read_training


def export_training(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], to: str | None = None, *, rank: int | None = None
) -> Path:
    """Write every step of a watched training, for the program ``to``, such as ``tensorboard``; return the path.

    ``folder`` is what :func:`fxdebug.watch` wrote, or still writes. Of a distributed training the lowest rank is
    written, without ``rank``. Raises ``LoadError`` for a folder without such a training, ``UsageError`` for a form that
    there is not.
    """
    return registry.export("training", read_training(Path(folder), rank), Path(path), to=to)

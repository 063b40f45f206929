"""The folder of one rank of a distributed run."""

from __future__ import annotations

from pathlib import Path


def rank_folder(folder: Path, rank: int | None) -> Path:
    """Where one rank's run lies in a folder; the folder itself for a run that has no rank."""
    return folder if rank is None or folder.name == f"rank-{rank}" else folder / f"rank-{rank}"

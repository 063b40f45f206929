"""The folders of a distributed run: one per rank, ``rank-0``, ``rank-1`` and so on."""

from __future__ import annotations

from pathlib import Path

from fxdebug.errors import LoadError


def rank_folder(folder: Path, rank: int | None) -> Path:
    """Return the folder of one rank's run; the folder itself where the run has no rank.

    >>> rank_folder(Path("run"), 1).as_posix(), rank_folder(Path("run"), None).as_posix()
    ('run/rank-1', 'run')
    """
    return folder if rank is None or folder.name == f"rank-{rank}" else folder / f"rank-{rank}"


def refuse_several_ranks(folder: Path) -> None:
    """Raise :class:`LoadError` if the folder holds a distributed run: one of its ranks must be named."""
    ranks = sorted(path.name for path in folder.glob("rank-*"))
    if ranks:
        raise LoadError(f"{folder} is a run of {len(ranks)} ranks: load one with rank=0 … rank={len(ranks) - 1}")

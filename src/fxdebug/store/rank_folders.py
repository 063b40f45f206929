"""The folders of a distributed run: one per rank, ``rank-0``, ``rank-1`` and so on."""

from __future__ import annotations

import sys
from pathlib import Path

from fxdebug.errors import LoadError, RankNeeded


def rank_and_size() -> tuple[int, int] | None:
    """Return the rank of this process and the number of ranks; ``None`` where no distributed job has begun.

    >>> rank_and_size()
    """
    job = sys.modules.get("torch.distributed")  # torch imports it
    if job is not None and job.is_available() and job.is_initialized():
        return job.get_rank(), job.get_world_size()
    return None


def rank_folder(folder: Path, rank: int | None) -> Path:
    """Return the folder of one rank's run; the folder itself where the run has no rank.

    >>> rank_folder(Path("run"), 1).as_posix(), rank_folder(Path("run"), None).as_posix()
    ('run/rank-1', 'run')
    """
    return folder if rank is None or folder.name == f"rank-{rank}" else folder / f"rank-{rank}"


def ranks_in(folder: Path) -> list[int]:
    """Return the ranks that a folder has runs of, the lowest first."""
    return sorted(int(number) for path in folder.glob("rank-*") if (number := path.name[5:]).isdecimal())


def refuse_several_ranks(folder: Path) -> None:
    """Raise :class:`RankNeeded` if the folder holds a distributed run: one of its ranks must be named."""
    ranks = ranks_in(folder)
    if ranks:
        named = f"rank={ranks[0]}" + (f" … rank={ranks[-1]}" if len(ranks) > 1 else "")
        error = RankNeeded(f"{folder} is a run of {len(ranks)} ranks: load one with {named}")
        error.folder, error.ranks = str(folder), tuple(ranks)
        raise error


def require_rank(folder: Path, rank: int) -> None:
    """Raise ``LoadError`` where a folder holds runs of ranks, and none of this one."""
    ranks = ranks_in(folder)
    if ranks and rank not in ranks and folder.name != f"rank-{rank}":
        raise LoadError(f"{folder} has no rank {rank}: it is a run of the ranks {', '.join(map(str, ranks))}")

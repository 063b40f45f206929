"""Which process of a distributed job this is."""

from __future__ import annotations

import torch.distributed


def rank_and_size() -> tuple[int, int] | None:
    """(rank, world size) under an initialised ``torch.distributed``, else ``None``."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None

"""Read the state of a device's allocator: the memory that it has reserved, and which blocks of it are in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fxdebug.features.memory.record import Segment


def segments_of(device: torch.device) -> tuple[Segment, ...] | None:
    """Return the segments of a CUDA device's caching allocator; ``None`` for a device that shows none."""
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return segments_from([one for one in torch.cuda.memory_snapshot() if one["device"] == index])


def segments_from(snapshot: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    """Return segments from what ``torch.cuda.memory_snapshot`` returns; a block that waits to be freed is in use.

    >>> blocks = [{"size": 2, "state": "inactive"}, {"size": 6, "state": "active_allocated"}]
    >>> segments_from([{"device": 0, "total_size": 8, "blocks": blocks}])
    (Segment(bytes=8, blocks=((2, False), (6, True))),)
    """
    return tuple(
        [
            Segment(
                int(one["total_size"]),
                tuple([(int(block["size"]), block["state"] != "inactive") for block in one["blocks"]]),
            )
            for one in snapshot
        ]
    )

"""Fragmentation of an allocator's memory: free blocks that no large allocation can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fxdebug.features.memory.record import Segment


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Bytes that an allocator has reserved, and those of them that are free.

    ``split`` are the free bytes in segments that are partly in use: they cannot be given back to the device. ``share``
    is ``split`` over ``reserved``. ``scattered`` is 1 − largest / free: 0 where the free bytes are one block.
    """

    reserved: int
    free: int
    split: int
    largest: int

    @property
    def share(self) -> float:
        """Free bytes in segments that are partly in use, over all that is reserved."""
        return self.split / self.reserved if self.reserved else 0.0

    @property
    def scattered(self) -> float:
        """Share of the free bytes that is outside of the largest free block."""
        return 1 - self.largest / self.free if self.free else 0.0


def fragmentation(segments: Sequence[Segment]) -> Fragmentation:
    """Return the fragmentation of an allocator's memory (as ``inactive_split_bytes`` of ``torch.cuda.memory_stats``).

    >>> one = Segment(16, ((2, False), (4, True), (2, False), (4, True), (4, False)))
    >>> fragmentation([one]).share, fragmentation([one]).scattered
    (0.5, 0.5)
    """
    free = [size for segment in segments for size, used in segment.blocks if not used]
    split = [
        size
        for segment in segments
        if any(used for _, used in segment.blocks)
        for size, used in segment.blocks
        if not used
    ]
    return Fragmentation(sum(segment.bytes for segment in segments), sum(free), sum(split), max(free, default=0))

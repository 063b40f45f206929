"""Fragmentation of an allocator's memory: row M4 of the analyses."""

from __future__ import annotations

import pytest
import torch

from fxdebug.features.memory.following.allocator import segments_from, segments_of
from fxdebug.features.memory.fragmentation import Fragmentation, fragmentation
from fxdebug.features.memory.record import MemoryRecord, Segment
from fxdebug.features.memory.report import memory_report

HALF = Segment(16, ((2, False), (4, True), (2, False), (4, True), (4, False)))


@pytest.mark.parametrize(
    "segments, found, share, scattered",
    [
        ([HALF], Fragmentation(16, 8, 8, 4), 0.5, 0.5),  # free 2 + 2 + 4 of 16
        ([HALF, Segment(16, ((16, False),))], Fragmentation(32, 24, 8, 16), 0.25, 1 / 3),  # an unused segment is whole
        ([Segment(8, ((8, True),))], Fragmentation(8, 0, 0, 0), 0.0, 0.0),
        ([], Fragmentation(0, 0, 0, 0), 0.0, 0.0),
    ],
)
def test_m4_free_blocks_between_used_ones_are_the_fragmentation(
    segments: list[Segment], found: Fragmentation, share: float, scattered: float
) -> None:
    pieces = fragmentation(segments)
    assert pieces == found
    assert (pieces.share, pieces.scattered) == (pytest.approx(share), pytest.approx(scattered))


def test_m4_torchs_snapshot_becomes_segments() -> None:
    states = ["inactive", "active_allocated", "inactive", "active_pending_free", "inactive"]
    blocks = [{"size": size, "state": state} for size, state in zip((2, 4, 2, 4, 4), states)]
    assert segments_from([{"device": 0, "total_size": 16, "blocks": blocks}]) == (HALF,)
    assert segments_of(torch.device("cpu")) is None


def test_m4_much_fragmentation_is_a_finding_and_little_is_a_number() -> None:
    def rules(*segments: Segment) -> list[tuple[str, float | None]]:
        report = memory_report(MemoryRecord(segments=segments), "Net", {}, {"steps": 1, "device": "cuda:0"})
        assert report.totals["  free, between used blocks"][1] == "%" and not report.notes
        return [(finding.rule, finding.measured) for finding in report.findings]

    assert rules(HALF) == [("fragmentation", 50.0)]
    assert rules(HALF, Segment(100, ((100, True),))) == []

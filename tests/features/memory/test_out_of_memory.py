"""Where memory runs out: what asked for it and where, what was in use, and what would fit."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import fxdebug

KIB = 1024


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(4)])


def failed(limit: int, **options: Any) -> fxdebug.Report[Any]:
    with pytest.raises(torch.OutOfMemoryError, match=r"passes the limit of .* that fxdebug\.memory was given"):
        fxdebug.memory(model(), torch.ones(32, 16), limit=limit, **options)
    report = fxdebug.last_failed_report()
    assert report is not None
    return report


def test_the_operation_that_asks_for_too_much_is_named_with_what_was_in_use() -> None:
    report = failed(80 * KIB)
    (finding,) = report.findings
    assert (finding.rule, finding.severity, finding.call, finding.op) == ("out of memory", "error", "3#0", "relu")
    line = Block.forward.__code__.co_firstlineno + 1
    assert finding.source == f"{__file__}:{line}"
    assert finding.what == (
        "relu asks for 8 KiB beside 73.2 KiB in use: the limit is 80 KiB; in use are 38 KiB activations, 33.2 KiB "
        "parameters, 2 KiB inputs; most of what was computed is that of relu (test_out_of_memory.py:"
        f"{line}): 24 KiB"
    )


def test_the_batch_that_fits_was_tried_and_the_next_one_does_not_fit() -> None:
    report = failed(80 * KIB)
    rows = {row.setting: row for part in report.parts if part.settings == {"by": "setting"} for row in part.rows}
    fits = next(row for row in rows.values() if row.how == "tried")
    batch = int(fits.setting.removeprefix("batch "))
    assert fits.fits and fits.peak <= 80 * KIB
    assert fxdebug.memory(model(), torch.ones(batch, 16), limit=80 * KIB).totals["peak"] == (fits.peak, "B")
    with pytest.raises(torch.OutOfMemoryError):
        fxdebug.memory(model(), torch.ones(batch + 1, 16), limit=80 * KIB)
    without = rows["batch 32 under torch.no_grad()"]
    with torch.no_grad():
        assert fxdebug.memory(model(), torch.ones(32, 16)).totals["peak"] == (without.peak, "B")
    assert report.findings[0].advice.startswith(f"batch {batch} fits (")


def test_settings_that_would_let_the_whole_batch_fit_were_tried_on_small_ones_and_hold() -> None:
    squares = lambda out: out.square().mean()  # noqa: E731
    big = nn.Sequential(*[nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)) for _ in range(6)])
    x, before = torch.ones(512, 64), [p.clone() for p in big.parameters()]
    with pytest.raises(torch.OutOfMemoryError):
        fxdebug.memory(big, x, loss=squares, limit=KIB * KIB)  # the weights alone take more
    report = fxdebug.last_failed_report()
    assert report is not None
    (part,) = [part for part in report.parts if part.settings == {"by": "setting"}]
    assert {"batch 1", "batch 512 with checkpointing, 6 calls"} <= {row.setting for row in part.rows if not row.fits}
    limit = 12 * KIB * KIB
    with pytest.raises(torch.OutOfMemoryError):
        fxdebug.memory(big, x, loss=squares, limit=limit)
    report = fxdebug.last_failed_report()
    assert report is not None
    rows = {row.setting: row for part in report.parts if part.settings == {"by": "setting"} for row in part.rows}
    row = rows["batch 512 with checkpointing, 6 calls"]
    assert row.fits and "batch 512 with checkpointing, 6 calls would fit" in report.findings[0].advice
    for block in big:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    peak = fxdebug.memory(big, x.requires_grad_(), loss=squares).totals["peak"][0]
    assert isinstance(peak, int) and 0.8 * peak <= row.peak <= 1.2 * peak
    assert all(torch.equal(a, b) for a, b in zip(before, big.parameters()))


def test_the_backward_may_be_what_asks() -> None:
    peak = fxdebug.memory(model(), torch.ones(32, 16), loss=lambda out: out.square().mean()).totals["peak"][0]
    assert isinstance(peak, int)
    (finding,) = failed(peak - 1, loss=lambda out: out.square().mean()).findings
    assert (finding.call, finding.source) == ("", None)
    assert re.match(r"\w+ asks in the backward for [\d.]+ KiB beside [\d.]+ KiB in use", finding.what)


def test_where_no_batch_fits_that_is_said() -> None:
    report = failed(34 * KIB)
    assert report.findings[0].advice == "no smaller batch was found that fits: see what is alive at the peak"


def test_an_error_of_the_allocator_is_read_and_passed_on() -> None:
    class Huge(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.new_empty(1 << 60).sum() + x

    with pytest.raises(RuntimeError, match="allocate"):
        fxdebug.memory(Huge(), torch.ones(4, 2))
    report = fxdebug.last_failed_report()
    assert report is not None
    (finding,) = report.findings
    assert finding.what.startswith("new_empty asks for 4096 PiB beside 32 B in use: the device has no more")


def test_a_limit_that_is_not_passed_changes_nothing_and_one_below_a_byte_is_refused() -> None:
    plain, limited = (fxdebug.memory(model(), torch.ones(32, 16), limit=limit) for limit in (None, 1 << 40))
    assert plain.rows == limited.rows and plain.totals == limited.totals
    with pytest.raises(fxdebug.UsageError, match="limit=0: give bytes, at least 1"):
        fxdebug.memory(model(), torch.ones(32, 16), limit=0)

"""``fxdebug.region`` and ``fxdebug.snapshot``."""

from __future__ import annotations

import threading
import timeit
from typing import Any

import torch
from torch import nn

import fxdebug


class Runs(nn.Module):
    """Runs a function in its forward."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.body = body

    def forward(self, x: torch.Tensor) -> Any:
        self.body(self, x)
        return self.inner(x)


def rows(body: Any) -> set[str]:
    report = fxdebug.profile(Runs(body), torch.ones(2), repeats=2, warmup=0, peak=False)
    return {row.call for row in report.rows if row.type == "region"}


def test_a_region_outside_of_a_profile_does_nothing() -> None:
    def use() -> None:
        with fxdebug.region("a"):
            pass

    fxdebug.snapshot("nobody listens")
    assert min(timeit.repeat(use, number=1000, repeat=5)) / 1000 < 20e-6


def test_a_region_in_a_loop_is_one_row_a_round() -> None:
    def body(module: nn.Module, x: torch.Tensor) -> None:
        for _ in range(3):
            with fxdebug.region("round"):
                torch.relu(x)

    assert rows(body) == {"Runs/round#0", "Runs/round#1", "Runs/round#2"}


def test_a_decorated_function_may_call_itself() -> None:
    @fxdebug.region("down")
    def down(depth: int) -> None:
        if depth:
            down(depth - 1)

    assert rows(lambda module, x: down(2)) == {"Runs/down#0", "Runs/down/down#0", "Runs/down/down/down#0"}


def test_a_region_that_is_never_stopped_ends_with_its_call_and_may_be_stopped_later() -> None:
    late: list[fxdebug.region] = []

    def body(module: nn.Module, x: torch.Tensor) -> None:
        late.append(fxdebug.region("open"))
        late[-1].start()

    assert rows(body) == {"Runs/open#0"}
    for one in late:
        one.stop()
        one.stop()


def test_regions_that_overlap_end_with_the_outer_one() -> None:
    def body(module: nn.Module, x: torch.Tensor) -> None:
        first, second = fxdebug.region("first"), fxdebug.region("second")
        first.start()
        second.start()
        first.stop()
        second.stop()

    assert rows(body) == {"Runs/first#0", "Runs/first/second#0"}


def test_a_region_ends_with_an_exception_that_the_forward_catches() -> None:
    def body(module: nn.Module, x: torch.Tensor) -> None:
        try:
            with fxdebug.region("fails"):
                raise ValueError
        except ValueError:
            pass
        with fxdebug.region("after"):
            pass

    assert rows(body) == {"Runs/fails#0", "Runs/after#0"}


def test_regions_of_other_threads_are_not_those_of_the_call() -> None:
    def body(module: nn.Module, x: torch.Tensor) -> None:
        def work() -> None:
            with fxdebug.region("elsewhere"):
                pass

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert rows(body) == set()


def test_torch_compile_passes_through_a_region() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with fxdebug.region("sum"):
                return x + 1

    compiled = torch.compile(Model(), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]

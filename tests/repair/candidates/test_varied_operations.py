"""Operations of b that take or repeat the right things in another order, where a has other operations there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.comparison.result import Row


class Counts(nn.Module):
    """Counts the symbols of each column."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last = nn.Linear(5, 3)

    def counts(self, rows: Tensor) -> Tensor:
        return F.one_hot(rows, 5).float().mean(0)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(self.counts(rows))  # type: ignore[no-any-return]


class ByBins(Counts):
    def __init__(self, each: bool) -> None:
        super().__init__()
        self.each = each

    def counts(self, rows: Tensor) -> Tensor:
        count, width = rows.shape
        columns = torch.arange(width)
        columns = columns.repeat_interleave(count) if self.each else columns.repeat(count)
        return torch.bincount(columns * 5 + rows.reshape(-1), minlength=width * 5).view(width, 5) / count


class Grid(nn.Module):
    """Adds to each cell of an image its place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last = nn.Linear(2, 3)

    def places(self, height: int, width: int) -> Tensor:
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        return torch.stack((x, y), 2).view(-1, 2).float()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x.flatten(2).mT + self.places(*x.shape[2:]))  # type: ignore[no-any-return]


class Counted(Grid):
    def __init__(self, x_first: bool) -> None:
        super().__init__()
        self.x_first = x_first

    def places(self, height: int, width: int) -> Tensor:
        number = torch.arange(height * width)
        x, y = number % width, number // width
        return torch.stack((x, y) if self.x_first else (y, x), 1).float()


def found(a: nn.Module, b: nn.Module, x: Tensor) -> list[Row]:
    return list(compare_models(a, b, x).findings)


ROWS = torch.randint(0, 5, (6, 9), generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 2, 4, 6, generator=torch.Generator().manual_seed(0))


def test_elements_that_are_repeated_in_another_order_are_told() -> None:
    told = "each element is repeated in turn in b, all of them in turn in a"
    assert [(row.op, row.because, row.proven) for row in found(Counts(), ByBins(True), ROWS)] == [
        ("repeat_interleave", told, True)
    ]
    assert not found(Counts(), ByBins(False), ROWS)


def test_operands_the_other_way_round_are_told() -> None:
    told = "the two operands of stack stand the other way round than in a"
    assert [(row.op, row.because, row.proven) for row in found(Grid(), Counted(False), IMAGE)] == [
        ("stack", told, True)
    ]
    assert not found(Grid(), Counted(True), IMAGE)


def test_an_order_is_not_told_beside_another_fault() -> None:
    port = Counted(False)
    with torch.no_grad():
        port.last.weight[0] *= 2
    assert not any("other way round" in row.because for row in found(Grid(), port, IMAGE))

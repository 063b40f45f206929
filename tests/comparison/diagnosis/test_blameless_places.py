"""What is not the cause is not told as one: a row that a loop takes in its turn, layers with numbers in their names."""

import pytest
import torch
from torch import Tensor, nn

import fxdebug


class Whole(nn.Module):
    """Adds a sum of all positions before to each one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places, self.out = nn.Embedding(9, 6), nn.Embedding(8, 6), nn.Linear(6, 4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.out(x.cumsum(1).tanh())  # type: ignore[no-any-return]


class InTurns(Whole):
    """Takes one position after the other; with ``forgets`` the sum begins anew at each of them."""

    def __init__(self, forgets: bool) -> None:
        super().__init__()
        self.forgets = forgets

    def forward(self, ids: Tensor) -> Tensor:
        total, made = torch.zeros(len(ids), 6), []
        for at, ids_here in enumerate(ids.unbind(1)):
            x = self.words(ids_here) + self.places.weight[at]
            total = x if self.forgets else total + x
            made.append(self.out(total.tanh()))
        return torch.stack(made, 1)


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(4, 4, 3, padding=1), nn.Conv1d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.conv1(x).tanh())  # type: ignore[no-any-return]


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block1, self.block2, self.block3 = Unit(), Unit(), Unit()

    def forward(self, x: Tensor) -> Tensor:
        return self.block3(self.block2(self.block1(x)))  # type: ignore[no-any-return]


class Listed(nn.Module):
    """The same in a list; with ``apart`` the sequence is cut in two, and nothing passes between them."""

    def __init__(self, model: Named, apart: bool) -> None:
        super().__init__()
        self.wide, self.narrow = (
            nn.ModuleList([getattr(block, name) for block in model.children()]) for name in ("conv1", "conv2")
        )
        self.apart = apart

    def part(self, x: Tensor) -> Tensor:
        for wide, narrow in zip(self.wide, self.narrow):
            x = x + narrow(torch.tanh(wide(x)))
        return x

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.part(each) for each in x.split(5 if self.apart else 10, -1)], -1)


IDS = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 1, 2]])


def test_the_row_that_a_loop_takes_in_its_turn_is_not_told() -> None:
    assert not fxdebug.compare_models(Whole().eval(), InTurns(forgets=False).eval(), IDS).findings
    told = fxdebug.compare_models(Whole().eval(), InTurns(forgets=True).eval(), IDS).findings
    assert told and not [row for row in told if "takes other rows" in row.because]


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_layers_that_are_numbered_in_their_names_have_their_own_weights(values: str) -> None:
    x, model = torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(1)), Named().eval()
    runs = [fxdebug.fx_debug(m, x, values=values) for m in (model, Listed(model, False), Listed(model, True))]
    assert not fxdebug.compare(runs[0], runs[1]).findings
    told = fxdebug.compare(runs[0], runs[2]).findings
    assert told and not [row for row in told if row.kind == "weights"]

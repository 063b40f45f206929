"""Operations with other settings than those of a and no sure counterparts: told only where these repair b."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.comparison.result import Row


class Whole(nn.Module):
    """Sums up all positions at once, and normalizes them together."""

    def __init__(self) -> None:
        super().__init__()
        self.take, self.norm, self.last = nn.Linear(8, 8), nn.GroupNorm(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.take(x).cumsum(1) * 0.5
        return self.last(self.norm(y.reshape(batch * length, width)).view(x.shape))  # type: ignore[no-any-return]


class Stepwise(nn.Module):
    """Goes from position to position."""

    def __init__(self, whole: Whole, groups: int = 4, factor: float = 0.5) -> None:
        super().__init__()
        self.taken, self.normed, self.out = nn.Linear(8, 8), nn.GroupNorm(groups, 8), nn.Linear(8, 3)
        self.factor = factor
        for own, other in ((self.taken, whole.take), (self.normed, whole.norm), (self.out, whole.last)):
            own.load_state_dict(other.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        state, rows = torch.zeros(x.shape[0], 8), []
        for at in range(x.shape[1]):
            state = state + self.taken(x[:, at])
            rows.append(self.normed(state * self.factor))
        return self.out(torch.stack(rows, 1))  # type: ignore[no-any-return]


def found(whole: Whole, port: nn.Module) -> list[Row]:
    given = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    return list(compare_models(whole, port, given).findings)


def whole() -> Whole:
    torch.manual_seed(0)
    made = Whole().eval()
    nn.init.normal_(made.norm.weight)
    return made


def test_the_settings_of_a_loop_that_faces_one_operation_are_told_where_those_of_a_repair_it() -> None:
    one = whole()
    told = [(row.op, row.kind, row.because, row.repair) for row in found(one, Stepwise(one, groups=1))]
    repair = "group_norm with the settings of a, and at 4 more places: with this edit b returns what a returns"
    assert told == [("group_norm", "constant", "num_groups=4 in a, num_groups=1 in b", repair)]
    assert not found(one, Stepwise(one))


def test_settings_beside_another_fault_are_told_with_it() -> None:
    one = whole()
    port = Stepwise(one, groups=1)
    with torch.no_grad():
        port.out.weight[0] *= 2
    both = ": with this and 1 more edit b returns what a returns"
    assert [(row.op, row.because, row.repair) for row in found(one, port)] == [
        (
            "group_norm",
            "num_groups=1 in b, where a's values need num_groups=4",
            f"group_norm with num_groups=4, and at 4 more places{both}",
        ),
        ("linear", "row 0 of out.weight differs from that of a", f"linear with the weights of a{both}"),
    ]

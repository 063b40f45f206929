"""Sizes and numbers of results that depend on values: Python that goes by them is asked again, for every input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fxdebug
from fxdebug import fx_debug


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)

    def chosen(self, x: torch.Tensor) -> torch.Tensor:
        return x[x[:, 0] > 0]


class CountsWhatIsChosen(Chosen):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.linear(x.mean(0)) * i for i in range(self.chosen(x).shape[0])])


class RepeatsAList(Chosen):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.tensor([1.0] * len(self.chosen(x))).sum()


class ComparesASize(Chosen):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.chosen(x)
        return self.linear(chosen) if chosen.shape[0] > 2 else chosen * 2


class SkipsWhatIsEmpty(Chosen):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for expert in (0, 3):
            (rows,) = torch.where(x.argmax(-1) == expert)
            if rows.numel() == 0:
                continue
            out = out.index_add(0, rows, self.linear(x[rows])) + 1
        return out


class DividesBySizes(Chosen):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (self.chosen(x).numel() / x.numel())


class IteratesOverPlaces(Chosen):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for row in (x[:, 0] > 0).nonzero():
            x[row] *= 2
        return x


class PadsToTheLongest(Chosen):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.chosen(x), self.chosen(-x)]
        longest = max(len(part) for part in parts)
        return torch.stack([F.pad(part, (0, 0, 0, longest - len(part))) for part in parts])


class ChildChooses(Chosen):
    class Chooses(Chosen):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.chosen(x)

    def __init__(self) -> None:
        super().__init__()
        self.chooses = self.Chooses()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((row * i for i, row in enumerate(self.chooses(x))), self.linear(x.mean(0)))


class ChildCounts(Chosen):
    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x * 2, int((x[:, 0] > 0).sum())

    def __init__(self) -> None:
        super().__init__()
        self.counts = self.Counts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, count = self.counts(x)
        return y * count


KINDS = [
    CountsWhatIsChosen, RepeatsAList, ComparesASize, SkipsWhatIsEmpty, DividesBySizes, IteratesOverPlaces,
    PadsToTheLongest, ChildChooses, ChildCounts,
]  # fmt: skip


def of(*signs: int) -> torch.Tensor:
    """A row for each sign: the first one of its numbers, and the largest, has it."""
    rows = torch.linspace(0.1, 0.2, 4 * len(signs)).view(-1, 4)
    rows[:, 0] = torch.tensor([float(sign) for sign in signs])
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_is_right_or_refuses_for_other_values_of_the_same_sizes(kind: type[Chosen]) -> None:
    model, made = kind(), of(1, 1, -1, 1, -1)
    refused = 0
    with torch.no_grad():
        trace = fx_debug(model, made)
        assert trace.root.status == "verified", trace.root.reason
        graph = trace.root.fx
        assert torch.equal(graph(made), model(made))
        for other in (of(1, -1, 1, 1, -1), of(1, 1, 1, 1, 1), of(-1, -1, -1, -1, 1), of(1, 1, 1, 1, 1, -1, -1)):
            for _ in range(2):
                try:
                    found = graph(other)
                except fxdebug.UsageError as error:
                    assert "test_symbolic_size.py:" in str(error)
                    refused += 1
                else:
                    assert torch.equal(found, model(other))
        assert refused
        assert torch.equal(graph(made * 2), model(made * 2))


class SizesOnly(Chosen):
    def forward(self, x: torch.Tensor) -> Any:
        chosen = self.chosen(x)
        return self.linear(chosen).reshape(chosen.shape[0], 2, -1) + torch.arange(chosen.shape[0])[:, None, None]


def test_sizes_that_stay_in_operations_hold_for_all_values() -> None:
    model = SizesOnly()
    with torch.no_grad():
        graph = fx_debug(model, of(1, 1, -1)).root.fx
        for other in (of(1, 1, 1), of(-1, -1, 1), of(1, -1, 1, 1)):
            assert torch.equal(graph(other), model(other))


class WritesBeforeItAsks(Chosen):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)  # type: ignore[operator]
        return x * 2 if x.sum() > 0 else x


def test_a_graph_that_refuses_for_a_value_has_changed_nothing() -> None:
    model = WritesBeforeItAsks()
    graph = fx_debug(model, of(1, 1)).root.fx
    state = torch.get_rng_state()
    with pytest.raises(fxdebug.UsageError, match=r"made where bool\(\) of a tensor is True .*; here it is False"):
        graph(of(-1, -1) * 9)
    assert model.seen.item() == 1  # type: ignore[operator]
    assert torch.equal(torch.get_rng_state(), state)


class Codebook(Chosen):
    """A buffer, a parameter and a module with names that a ``GraphModule`` has for something of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("code", torch.ones(4))
        self.guards = nn.Parameter(torch.ones(4))
        self.graph = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.graph(x) * self.code * self.guards


def test_a_graph_runs_though_a_buffer_is_called_what_a_graph_module_has_itself() -> None:
    model = Codebook()
    graph = fx_debug(model, of(1, 1)).root.fx
    assert torch.equal(graph(of(1, -1, 1)), model(of(1, -1, 1)))
    assert "code_code" in graph.code


class Decides(Chosen):
    """By what is set on it, on what it holds, and by the kind of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.times = 2.0, 1
        self.options = {"shift": 1.0}
        self.inner = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = x * self.scale + self.options["shift"]
        return F.dropout(x, 0.5, self.inner.training).to(self.linear.weight.dtype)


def change(model: Any, what: str) -> None:
    match what:
        case "an attribute":
            model.scale = 3.0
        case "a number":
            model.times = 2
        case "an item":
            model.options["shift"] = -1.0
        case "a flag of a child":
            model.inner.eval()
        case _:
            model.double()


@pytest.mark.parametrize(
    "what", ["an attribute", "a number", "an item", "a flag of a child", "the dtype of parameters"]
)
def test_a_graph_refuses_when_what_its_module_decides_by_was_set_since(what: str) -> None:
    model, x = Decides(), of(1, -1, 1)
    graph = fx_debug(model, x).root.fx
    graph(x)
    change(model, what)
    with pytest.raises(fxdebug.UsageError, match=r"does something else|runs more operations"):
        graph(x)

"""Outputs of runs are compared, too: their number, shapes and order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import fx_debug


class Ends(nn.Module):
    """A layer, and what is returned of it."""

    def __init__(self, end: Callable[[Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)
        self.end = end

    def forward(self, x: Tensor) -> Any:
        return self.end(self.layer(x))


def returned(end: Callable[[Tensor], Any], values: str) -> fxdebug.Trace:
    torch.manual_seed(1)
    return fx_debug(Ends(end), torch.randn(8, 8), values=values)


CONSTANT, OTHER = torch.arange(8.0), torch.arange(8.0) * 5 + 1
OTHERS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Any], str]] = {
    "transposed": (lambda y: y, lambda y: y.t(), "values"),
    "split otherwise": (lambda y: y.view(8, 2, 4).transpose(1, 2), lambda y: y.view(8, 4, 2), "values"),
    "nothing": (lambda y: y, lambda y: None, "missing"),
    "one less": (lambda y: (y, y * 2), lambda y: (y, y * 2)[:1], "missing"),
    "one more": (lambda y: (y,), lambda y: (y, y), "extra"),
    "another shape": (lambda y: y, lambda y: y[None], "shape"),
    "another name": (lambda y: {"logits": y}, lambda y: {"loss": y}, "missing"),
    "a tensor for None": (lambda y: (y, None), lambda y: (y, y * 2), "extra"),
    "another number": (lambda y: (y, 3), lambda y: (y, 4), "values"),
    "another fraction": (lambda y: {"y": y, "rate": 0.5}, lambda y: {"y": y, "rate": 0.4}, "values"),
    "another text": (lambda y: (y, "mean"), lambda y: (y, "sum"), "values"),
    "another constant": (lambda y: (y, CONSTANT), lambda y: (y, OTHER), "values"),
}


@pytest.mark.parametrize("values", ["samples", "tensors"])
@pytest.mark.parametrize("name", OTHERS)
def test_another_result_is_a_finding_about_the_model(name: str, values: str, tmp_path: Path) -> None:
    before, after, kind = OTHERS[name]
    a, b = returned(before, values), returned(after, values)
    found = [fxdebug.compare(a, b)]
    if values == "samples":
        fxdebug.save_golden(a, tmp_path / "run.golden.json.gz")
        found.append(fxdebug.compare(tmp_path / "run.golden.json.gz", b))
    for comparison in found:
        assert not comparison.equal
        first = comparison.findings[0]
        assert (first.kind, first.path, first.op) == (kind, "", None)


@pytest.mark.parametrize("values", ["stats", "samples", "tensors"])
@pytest.mark.parametrize("name", OTHERS)
def test_an_equal_result_is_no_finding(name: str, values: str) -> None:
    for end in OTHERS[name][:2]:
        assert fxdebug.compare(returned(end, values), returned(end, values)).equal


def test_a_computed_number_is_a_finding_about_the_step_that_computed_it() -> None:
    for end, other, op in (
        (lambda y: y.mean().item(), lambda y: y.sum().item(), "sum"),
        (lambda y: y.mean(-1).tolist(), lambda y: y.amax(-1).tolist(), "amax"),
    ):
        for values in ("stats", "tensors"):
            comparison = fxdebug.compare(returned(end, values), returned(other, values))
            assert not comparison.equal and comparison.findings[0].op == op
            assert fxdebug.compare(returned(end, values), returned(end, values)).equal


def test_a_module_that_one_run_calls_and_the_other_does_not_leaves_them_runs_of_one_model() -> None:
    class Two(nn.Module):
        def __init__(self, both: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second, self.both = nn.Linear(8, 8), nn.Linear(8, 8), both

        def forward(self, x: Tensor) -> Any:
            y = self.first(x)
            return y, self.second(y) if self.both else None

    one, both = (fx_debug(Two(flag), torch.ones(2, 8)) for flag in (False, True))
    assert [finding.kind for finding in fxdebug.compare(one, both).findings] == ["extra"]
    assert [finding.kind for finding in fxdebug.compare(both, one).findings] == ["missing"]


def test_a_number_within_rounding_is_no_difference() -> None:
    a = returned(lambda y: (y, y.double().mean().item()), "stats")
    b = returned(lambda y: (y, y.float().mean().item()), "stats")
    assert fxdebug.compare(a, b).equal


def test_a_model_that_is_asked_for_less_may_return_less() -> None:
    class Asked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor, both: bool = True) -> Any:
            y = self.layer(x)
            return (y, y * 2) if both else (y,)

    model, x = Asked(), torch.ones(2, 8)
    for one, other in (((x, True), (x, False)), ({"x": x, "both": True}, {"x": x, "both": False}), (x, (x, False))):
        assert fxdebug.compare(fx_debug(model, one), fx_debug(model, other)).equal
        assert fxdebug.compare(fx_debug(model, other), fx_debug(model, one)).equal


class Remembers(nn.Module):
    """A recurrent layer that goes on from the state of the call before, unless it is reset."""

    def __init__(self, resets: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.resets, self.rnn, self.state, self.seen = resets, nn.GRU(5, 8), None, torch.zeros(8)

    def forward(self, x: Tensor) -> Tensor:
        if self.resets:
            self.state = None
        y, state = self.rnn(x, self.state)
        self.state = state.detach()
        return y


class Averages(nn.Module):
    """Takes off an average over calls, which is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.average = nn.Linear(5, 8), torch.zeros(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.average = 0.9 * self.average + 0.1 * y.mean((0, 1))
        return y - self.average


class Listed(nn.Module):
    """Keeps its layers in a plain list: ``load_state_dict`` does not fill them."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [[nn.Linear(5, 5), nn.ReLU()]]

    def forward(self, x: Tensor) -> Tensor:
        for layer, act in self.hidden:
            x = act(layer(x))
        return x


def test_weights_in_a_plain_list_are_told_where_two_models_differ() -> None:
    with torch.no_grad():
        first = fxdebug.compare_models(Listed(), Listed(), torch.ones(2, 5)).first
    assert first is not None
    assert (first.path, first.because) == (
        "hidden[0][0]",
        "it is given a weight of hidden[0][0], which no module registers (a plain list or dict: state_dict() leaves it "
        "out); it is another one in a",
    )


def test_state_of_an_earlier_call_is_told_where_two_calls_of_one_model_differ() -> None:
    x = torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(0))
    for model, said in (
        (Remembers(resets=False), "in b it is given state, which an earlier call has left, in a it is not"),
        (Averages(), "it is given average, which an earlier call has left; it is another one in a"),
    ):
        with torch.no_grad():
            first = fxdebug.compare(fx_debug(model, x), fx_debug(model, x)).first
        assert first is not None and first.because == said
    model = Remembers(resets=True)
    with torch.no_grad():
        assert fxdebug.compare(fx_debug(model, x), fx_debug(model, x)).equal

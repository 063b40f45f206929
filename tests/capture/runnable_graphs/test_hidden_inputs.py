"""What a body does may rest on what it hears, holds and returns: a graph of it is right, or refuses."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import UsageError


class Window(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return {"part": slice(x.argmax(), x.shape[0])}


class Windowed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.window = Window()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[self.window(x)["part"]]


def test_a_slice_between_tensors_is_a_result_like_any_other() -> None:
    trace = fx_debug(Windowed(), torch.tensor([1.0, 5.0, 2.0, 3.0]))
    assert [call.status for call in trace.calls] == ["verified", "verified"]
    other = torch.tensor([9.0, 5.0, 2.0, 3.0])
    assert torch.equal(trace.root.fx(other), other)


class Bound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.end = torch.tensor(3)

    def forward(self, x: torch.Tensor) -> slice:
        return slice(0, self.end)


class Cut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bound = Bound()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[self.bound(x)]


def test_a_slice_of_a_tensor_that_the_model_holds() -> None:
    model, x = Cut(), torch.arange(5.0)
    trace = fx_debug(model, x)
    assert [call.status for call in trace.calls] == ["verified", "verified"]
    assert trace.graph.number_of_nodes() > 3
    model.bound.end.fill_(2)
    assert torch.equal(trace.root.fx(x + 1), model(x + 1))


class Warns(nn.Module):
    """Does something else where it has something to say."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * getattr(self, self.how)(x.shape[0] > 4)

    def recorded(self, large: bool) -> int:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if large:
                warnings.warn("a large batch", stacklevel=1)
        return 2 if said else 3

    def raised(self, large: bool) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                if large:
                    warnings.warn("a large batch", stacklevel=1)
            except UserWarning:
                return 2
        return 3

    def printed(self, large: bool) -> int:
        text = io.StringIO()
        if large:
            print("a large batch", file=text)
        return 2 if text.getvalue() else 3

    def redirected(self, large: bool) -> int:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            if large:
                print("a large batch")
        return 2 if text.getvalue() else 3


@pytest.mark.parametrize("how", ["recorded", "raised", "printed", "redirected"])
def test_what_a_body_hears_of_what_it_says_decides_as_it_does_in_the_model(how: str) -> None:
    model = Warns(how)
    call = fx_debug(model, torch.ones(3, 2)).root
    assert call.status == "verified"
    assert torch.equal(call.fx(torch.ones(2, 2)), model(torch.ones(2, 2)))
    with pytest.raises(UsageError):
        call.fx(torch.ones(5, 2))
    large = fx_debug(model, torch.ones(5, 2)).root
    assert large.status == "verified" and torch.equal(large.fx(torch.ones(6, 2)), torch.full((6, 2), 2.0))


class Asks(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.what = what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (2 if getattr(self.linear.weight, self.what) is None else 3)


@pytest.mark.parametrize("what", ["grad", "_backward_hooks"])
def test_what_a_body_asks_of_the_gradient_of_a_weight(what: str) -> None:
    model, x = Asks(what), torch.ones(1, 2)
    call = fx_debug(model, x).root
    assert call.status == "verified" and torch.equal(call.fx(x), model(x))
    if what == "grad":
        model.linear.weight.grad = torch.ones(2, 2)
    else:
        model.linear.weight.register_hook(lambda gradient: gradient)
    with pytest.raises(UsageError):
        call.fx(x)


def test_a_variable_of_the_environment_is_no_part_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Steps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            os.environ["STEPS"] = str(int(os.environ["STEPS"]) + 1)
            return x * 2

    monkeypatch.setenv("STEPS", "0")
    call = fx_debug(Steps(), torch.ones(2)).root
    assert call.status == "verified" and os.environ["STEPS"] == "1"
    with pytest.raises(UsageError, match="attributes or other objects that last"):
        call.fx(torch.ones(2))
    assert os.environ["STEPS"] == "1"


class Rolled(nn.Module):
    """Asks how a result lies in memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.roll(x, 1, 1)
        return y * (2 if y.is_contiguous() else 3)


def test_how_a_result_lies_in_memory_is_looked_at_where_it_is_asked_for() -> None:
    model, x = Rolled(), torch.ones(2, 2, 4, 4)
    call = fx_debug(model, x).root
    assert call.status == "verified" and torch.equal(call.fx(x[:1]), model(x[:1]))
    with pytest.raises(UsageError, match="does not hold here"):
        call.fx(x.contiguous(memory_format=torch.channels_last))


class Factored(nn.Module):
    def __init__(self, catches: bool) -> None:
        super().__init__()
        self.catches = catches

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return torch.linalg.cholesky(x)
        except torch.linalg.LinAlgError:
            if not self.catches:
                raise
            return torch.linalg.cholesky(x + 3 * torch.eye(4))


@pytest.mark.parametrize("catches", [False, True])
def test_an_operation_that_raises_for_other_values(catches: bool) -> None:
    call = fx_debug(Factored(catches), torch.eye(4)).root
    assert call.status == "verified" and torch.equal(call.fx(4 * torch.eye(4)), 2 * torch.eye(4))
    with pytest.raises(UsageError if catches else torch.linalg.LinAlgError, match="cholesky"):
        call.fx(-torch.eye(4))


def test_a_weight_that_was_put_elsewhere_since() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + nn.functional.linear(x, self.linear.weight)

    model, x = Twice(), torch.ones(2, 4)
    call = fx_debug(model, x).root
    assert torch.equal(call.fx(x), model(x))
    nn.utils.parametrizations.weight_norm(model.linear)
    with pytest.raises(UsageError, match="as the model is now, it does something else"):
        call.fx(x)


class Emptied(nn.Module):
    """Writes to one of two inputs, and counts in the other."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.zero_()
        return y + (1 if len(y[y != 0]) > 3 else 2)


def test_inputs_that_share_memory_share_it_where_they_are_tried() -> None:
    call = fx_debug(Emptied(), (torch.ones(3, 4), torch.ones(3, 4))).root
    assert call.status == "verified"
    assert torch.equal(call.fx(torch.ones(3, 4), torch.ones(3, 4)), torch.full((3, 4), 2.0))
    shared = torch.ones(3, 4)
    with pytest.raises(UsageError):
        call.fx(shared, shared.view(3, 4))

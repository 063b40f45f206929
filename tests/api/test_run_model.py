"""What ``fx_debug`` is given: a list is the positional arguments, and an exception says so where it may be why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from support.trees import Does, ones


class Batch(nn.Module):
    def forward(self, tensors: list[torch.Tensor], scale: float = 1.0) -> torch.Tensor:
        return torch.cat(tensors) * scale

    def total(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(tensors).sum()


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 2)

    def forward(self, tokens: torch.Tensor, mask: Any = None, more: Any = None) -> torch.Tensor:
        return self.embed(tokens)


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (Batch(), (ones(),) * 3, "a tuple of 3, and a tuple is the positional arguments of forward(tensors, scale)"),
        (Batch(), [ones()] * 3, "a list of 3, and a list is the positional arguments of forward(tensors, scale)"),
        (Batch().total, [ones(), ones()], "a list of 2, and a list is the positional arguments of total(tensors)"),
        (Tokens(), [1, 2, 3], "a list of 3, and a list is the positional arguments of forward(tokens, mask, more)"),
        (Tokens(), [[1, 2], [3, 4]], "a list of 2, and a list is"),
        (nn.Linear(4, 4), [], "a list of 0, and a list is the positional arguments of forward(input)"),
    ],
)  # fmt: skip
def test_a_list_or_tuple_that_does_not_fit_is_said_in_a_note(
    model: Any, inputs: list[Any] | tuple[Any, ...], said: str
) -> None:
    with pytest.raises((TypeError, AttributeError)) as native:
        model(*inputs)
    with pytest.raises(native.type) as raised:
        fx_debug(model, inputs)
    assert str(raised.value) == str(native.value)  # the model's own exception
    (note,) = raised.value.__notes__
    assert note.startswith(f"fx_debug: inputs is {said}") and note.endswith("write fx_debug(model, (inputs,))")


def test_other_exceptions_get_no_note() -> None:
    for inputs in ((ones(), "a"), {"tensors": 3}, [torch.ones(3, 3), 1.0], ones()):
        model = nn.Linear(4, 4) if isinstance(inputs, list) else Batch()
        with pytest.raises((TypeError, RuntimeError)) as raised:
            fx_debug(model, inputs[:1] if isinstance(inputs, list) else inputs)
        assert not hasattr(raised.value, "__notes__")
    assert fx_debug(Batch(), ([ones(), ones()],)).output.shape == (2, 4)
    with pytest.raises(ValueError, match="own") as raised:
        fx_debug(Does(lambda self, x: (_ for _ in ()).throw(ValueError("own"))), [ones()])
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda model, x: fxdebug.summary(x, model), "is read from the path of its folder or file, not from a Tensor"),
        (lambda model, x: fxdebug.load(x), "is read from the path of its folder or file, not from a Tensor"),
        (lambda model, x: fxdebug.watch(x), "watch needs a torch.nn.Module, not a Tensor"),
        (lambda model, x: fxdebug.watch(model, "runs"), "the second argument of watch is an optimizer, not a str"),
        (lambda model, x: fxdebug.export_onnx(model, x, "model.onnx"), "call it as export_onnx.model, path, inputs"),
    ],
)
def test_arguments_in_another_order_are_refused_with_the_right_one(call: Any, said: str) -> None:
    with pytest.raises(fxdebug.UsageError, match=said):
        call(torch.nn.Linear(2, 2), torch.ones(1, 2))


def test_a_second_input_in_the_place_of_kwargs_is_refused_with_the_right_form() -> None:
    said = r"kwargs is a dict of keyword arguments, and not a Tensor: positional arguments go into one tuple"
    with pytest.raises(fxdebug.UsageError, match=said):
        fx_debug(nn.Bilinear(2, 2, 2), torch.ones(2), torch.ones(2))  # type: ignore[arg-type]

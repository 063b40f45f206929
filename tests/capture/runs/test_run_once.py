"""Tracing methods of a model other than ``forward``, and ``forward`` itself as a method."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def encode(self, x, *, scale=1.0):
        return {"hidden": self.body(x) * scale}

    def forward(self, x):
        return self.head(self.encode(x)["hidden"])


def test_the_root_of_a_traced_method_has_what_went_in_and_out():
    trace = fx_debug(Encoder(), torch.ones(2, 4), {"scale": 2.0}, method="encode")
    assert [(call.path, call.method) for call in trace.calls] == [("", "encode"), ("body", "forward")]
    assert trace.root.inputs.slots == ("args[0]",) and trace.root.inputs.kwargs == {"scale": 2.0}
    assert trace.root.inputs[0] is trace.calls[1].inputs[0]
    assert trace.root.outputs["hidden"].shape == (2, 3)


def test_a_bound_method_and_its_name_are_the_same():
    model, x = Encoder(), torch.ones(2, 4)
    by_name, bound = fx_debug(model, x, method="encode"), fx_debug(model.encode, x)
    assert str(by_name).splitlines()[1:] == str(bound).splitlines()[1:]


def test_a_saved_method_is_loaded_equal(tmp_path):
    trace = fx_debug(Encoder().encode, torch.ones(2, 4), save=tmp_path, values="tensors")
    again = fxdebug.load(tmp_path)
    assert again == trace
    assert torch.equal(again.tensor(again.root.outputs["hidden"]), trace.output["hidden"])


def test_a_method_that_raises_has_what_it_was_given_and_no_output():
    with pytest.raises(RuntimeError):
        fx_debug(Encoder().encode, torch.ones(2, 5))
    root = fxdebug.last_failed().root
    assert root.inputs[0].shape == (2, 5) and root.outputs is None and not root.error.here


def test_the_bound_forward_is_the_forward():
    trace = fx_debug(Encoder().forward, torch.ones(2, 4))
    assert [(call.path, call.method) for call in trace.calls] == [
        ("", "forward"), ("body", "forward"), ("head", "forward")
    ]  # fmt: skip
    assert trace.root.outputs[0].shape == (2, 2)


def test_hooks_of_the_model_do_not_run_for_the_bound_forward():
    model, heard = Encoder(), []
    model.register_forward_hook(lambda *_: heard.append("hook"))
    fx_debug(model.forward, torch.ones(2, 4))
    assert heard == []

"""``edit`` does exactly what a hook would, ``replay`` what the body would; both leave the model as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from support.same import difference
from support.stepped import Tiny

X = torch.linspace(-1, 1, 12).view(1, 4, 3)


def model() -> Tiny:
    torch.manual_seed(0)
    return Tiny().eval()


def hooked(path: str, change: Any) -> torch.Tensor:
    module = model()
    module.get_submodule(path).register_forward_hook(lambda each, args, out: change(out))
    logits: torch.Tensor = module(X)["logits"]
    return logits


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        (lambda out: out * 0, torch.zeros_like),
        (0, torch.zeros_like),
        (torch.ones(1, 4, 8), torch.ones_like),
        (fxdebug.ablate(), torch.zeros_like),
        (fxdebug.ablate(to=2), lambda out: torch.full_like(out, 2)),
        (fxdebug.ablate(to="mean"), lambda out: out.mean((0, 1), keepdim=True).expand_as(out)),
    ],
)
def test_each_edit_of_a_call_does_what_a_hook_does(edit: Any, change: Any) -> None:
    result = fxdebug.edit(model(), {"h.0.attn": edit}, X)
    assert torch.equal(result.b.output["logits"], hooked("h.0.attn", change))
    assert result.first is not None and result.first.path == "h.0.attn" and "edited: h.0.attn" in result.notes


def test_the_result_of_an_operation_and_an_argument_are_edited() -> None:
    result = fxdebug.edit(model(), {"h.0.attn/softmax": 0, "h.1.mlp args[0]": lambda x: x + 1}, X)
    module = model()
    module.h[0].attn.proj.register_forward_pre_hook(lambda each, args: (args[0] * 0,))
    module.h[1].mlp.register_forward_pre_hook(lambda each, args: (args[0] + 1,))
    assert torch.equal(result.b.output["logits"], module(X)["logits"])
    assert (result.b["h.0.attn"].status, result.b["h.1.attn"].status) == ("recorded", "verified")


def test_a_part_of_a_result_is_edited_and_the_rest_stays_the_same_object() -> None:
    result = fxdebug.edit(model(), {"Tiny out.hidden": 0}, X)
    assert type(result.b.output) is dict and not result.b.output["hidden"].any()
    assert torch.equal(result.b.output["logits"], model()(X)["logits"])


def test_a_value_of_another_run_is_patched_in_whole_or_in_part() -> None:
    clean = fxdebug.fx_debug(model(), X, values="tensors")
    whole = fxdebug.edit(model(), {"h.1": fxdebug.patch(clean)}, X * 2).b.output["logits"]
    close = torch.testing.assert_close  # a kernel may sum in another order where memory begins elsewhere
    close(whole, clean.output["logits"])
    part = fxdebug.edit(model(), {"h.1": fxdebug.patch(clean, index=(0, 2))}, X * 2).b.output["logits"]
    close(part[0, 2], clean.output["logits"][0, 2])
    close(part[0, 1], model()(X * 2)["logits"][0, 1])


def test_heads_are_ablated_in_written_out_and_in_fused_attention() -> None:
    class Heads(nn.Module):
        def __init__(self, fused: bool) -> None:
            super().__init__()
            self.fused = fused

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.fused:
                return nn.functional.scaled_dot_product_attention(x, x, x)
            return (x @ x.transpose(-1, -2) / x.shape[-1] ** 0.5).softmax(-1) @ x

    x = torch.randn(2, 3, 4, 8)
    for fused in (False, True):
        result = fxdebug.edit(Heads(fused), {"Heads": fxdebug.ablate(heads=[0, 2])}, x)
        assert not result.b.output[:, [0, 2]].any()
        assert torch.equal(result.b.output[:, 1], result.a.output[:, 1])


def test_gradients_go_through_an_edit_and_the_model_is_as_it_was() -> None:
    module = model().train()
    before = [dict(vars(each)) for each in module.modules()]
    random = torch.get_rng_state()
    result = fxdebug.edit(module, {"h.1.mlp": lambda out: out * 3}, X)
    assert [dict(vars(each)) for each in module.modules()] == before and torch.equal(random, torch.get_rng_state())
    result.b.output["logits"].sum().backward()
    expected = model().train()
    expected.h[1].mlp.register_forward_hook(lambda each, args, out: out * 3)
    expected(X)["logits"].sum().backward()
    ours, theirs = ({n: p.grad for n, p in each.named_parameters()} for each in (module, expected))
    assert difference(ours, theirs, "gradients") is None


def test_a_trace_that_kept_its_tensors_needs_no_inputs() -> None:
    trace = fxdebug.fx_debug(model(), X, values="tensors")
    assert torch.equal(fxdebug.edit(trace, {"h.1": 0}).b.output["logits"], hooked("h.1", torch.zeros_like))
    with pytest.raises(fxdebug.UsageError, match="were not kept"):
        fxdebug.edit(fxdebug.fx_debug(model(), X), {"h.1": 0})


@pytest.mark.parametrize(
    ("edits", "error", "text"),
    [
        ({}, fxdebug.UsageError, "at least one edit"),
        ({"h.9": 0}, fxdebug.NotFound, "Did you mean 'h.1'"),
        ({"h.1/softmax": 0}, fxdebug.NotFound, "changed nothing"),
        ({"h.1": lambda out: None}, fxdebug.UsageError, "returned None"),
        ({"h.1": "zero"}, fxdebug.UsageError, "not str"),
        ({"h.1 args": 0}, fxdebug.UsageError, "name one argument"),
        ({"h.1.attn": fxdebug.ablate(heads=1)}, fxdebug.UsageError, "third dimension"),
        ({"h.1 out[3]": 0}, fxdebug.UsageError, "has no 3|out of range"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why(edits: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        fxdebug.edit(model(), edits, X)


# Replay --------------------------------------------------------------------------------------------


def test_c4_a_verified_body_runs_on_edited_inputs_and_nothing_else_does() -> None:
    module = model()
    trace = fxdebug.fx_debug(module, X, values="tensors")
    called = []
    for path, each in module.named_modules():
        each.register_forward_hook(lambda each, args, out, path=path: called.append(path))  # type: ignore[misc]
    result = fxdebug.replay(trace, "h.1.mlp", {"input_1": lambda x: x * 2})
    given = trace.tensor(trace["h.1.mlp"].inputs[0])
    assert called == []  # its graph calls the forwards of its children, and no module
    assert torch.equal(result.b.output, model().h[1].mlp(given * 2))
    assert torch.equal(result.a.output, trace.tensor(trace["h.1.mlp"].outputs[0]))


def test_c4_the_result_of_an_operation_inside_is_changed() -> None:
    trace = fxdebug.fx_debug(model(), X, values="tensors")
    result = fxdebug.replay(trace, "h.0.attn", {"softmax": 0})
    assert torch.equal(result.b.output, model().h[0].attn.proj.bias.expand(1, 4, 8))
    assert [node.op for node in result.b.ops() if node.op in ("new_tensor", "expand_as", "edited")] == ["edited"]


def test_c4_a_call_that_cannot_be_replayed_says_why() -> None:
    trace = fxdebug.fx_debug(model(), X)
    with pytest.raises(fxdebug.UsageError, match="were not kept"):
        fxdebug.replay(trace, "h.0")
    kept = fxdebug.fx_debug(model(), X, values="tensors")
    with pytest.raises(fxdebug.NotFound, match="Did you mean 'softmax'"):
        fxdebug.replay(kept, "h.0.attn", {"sofmax": 0})

    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x * 3

    branching = fxdebug.fx_debug(Branches(), torch.ones(2), values="tensors")
    with pytest.raises(fxdebug.UsageError, match="does not hold"):
        fxdebug.replay(branching, "", {"x": lambda x: -x})


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("softmax", "'softmax' is an operation: name its call, too, as in 'h.0.attn#0/softmax' or '*/softmax'"),
        ("h.0.attn x", "behind a call stands out, args[0] or kwargs['name'], not 'x'"),
        ("h.0.atn", "Did you mean 'h.0.attn'"),
        ("attn", "Did you mean 'h.0.attn' or 'h.1.attn'"),
    ],
)
def test_an_edit_of_what_there_is_not_says_how_it_is_named(name: str, error: str) -> None:
    with pytest.raises(fxdebug.NotFound) as raised:
        fxdebug.edit(model(), {name: 0}, X)
    assert error in str(raised.value)


def test_the_model_goes_by_the_id_that_the_console_shows_and_an_argument_by_its_own_name() -> None:
    changed = fxdebug.edit(model(), {"Tiny#0": lambda logits: logits * 0}, X)
    assert changed.b.output["logits"].abs().sum() == 0
    trace = fxdebug.fx_debug(nn.Sequential(nn.ReLU()), X, values="tensors")
    assert fxdebug.replay(trace, "0", {"input": 0}).b.output.abs().sum() == 0
    with pytest.raises(fxdebug.NotFound, match=r"has no 'q'\. It has input, relu\."):
        fxdebug.replay(trace, "0", {"q": 0})


class Shared(nn.Module):
    """A layer that is called twice, in a block below the model."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Module()
        self.block.fc, self.block.act = nn.Linear(2, 2), nn.ReLU()
        self.block.forward = lambda x: self.block.act(self.block.fc(self.block.act(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("block.fc", "block.fc"),
        ("block.act#1", "block.act#1"),
        ("block.act", "block.act#0, block.act#1"),
        ("Shared", "Shared"),
        ("block.fc/linear", "block.fc/linear"),
        ("block.act#0/relu", "block.act#0/relu"),
    ],
)
def test_a_note_counts_the_calls_only_of_modules_that_were_called_several_times(name: str, told: str) -> None:
    result = fxdebug.edit(Shared(), {name: lambda out: out + 1}, torch.ones(1, 2))
    assert [note.what for note in result.b.notes] == [f"edited: {told}"] and result.notes[0] == f"edited: {told}"


@pytest.mark.parametrize("name", ["h.1", "h.1.mlp", "h.0.attn", ""])
def test_a_replay_names_calls_and_weights_as_the_tree_of_the_model_does(name: str) -> None:
    trace = fxdebug.fx_debug(model(), X, values="tensors")
    result = fxdebug.replay(trace, name)
    inside = [call.path for call in trace[name].walk()][1:]
    for side in (result.a, result.b):
        assert [call.path for call in side.calls] == ["", *inside]
        names = {parameter.name: parameter for parameter in trace.parameters}
        assert {parameter.name for parameter in side.parameters} <= names.keys()
    assert result.equal and result.notes[0] == f"replayed: {name or 'Tiny'}, from its verified graph"
    with pytest.raises(fxdebug.NotFound, match=f"the graph of {name or 'Tiny'} has no 'q'"):
        fxdebug.replay(trace, name, {"q": 0})

"""Calls and modules of which the JSON of transformers' debugger tells nothing or something wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from fxdebug.query.folding import fold_repeated
from support.emitted import layers
from support.trees import Does, assert_text_equal, calls, linear, nodes, ones, saved, theirs, tree


def test_childless_call_of_parent_loses_output(tmp_path: Path) -> None:
    """A module that calls none of its children in this forward has its output all the same."""

    def make() -> tuple[nn.Module, dict[str, Any]]:
        skips = Does(lambda self, x: x + 1, unused=linear())
        return Does(lambda self, x: self.skips(x), skips=skips), {"x": ones()}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path, values="tensors")
    (call,) = trace.find("skips")
    assert call.has_submodules and not call.children
    assert torch.equal(trace.tensor(call.outputs[0]), ones() + 1)
    assert tree(tmp_path)["children"][0]["outputs"] is None


def test_parameters_and_buffers_not_recorded(tmp_path: Path) -> None:
    """Parameters and buffers are recorded, under all their names, with what the forward did to them."""

    def make() -> tuple[nn.Module, dict[str, Any]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(4), linear(), linear())
        model[2].weight = model[1].weight
        model.register_buffer("steps", torch.zeros(2, dtype=torch.long), persistent=False)
        return model, {"input": torch.arange(8.0).reshape(2, 4)}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path)
    found = {parameter.name: parameter for parameter in trace.parameters}
    assert set(found) == {
        "steps", "0.weight", "0.bias", "0.running_mean", "0.running_var", "0.num_batches_tracked",
        "1.weight", "1.bias", "2.bias",
    }  # fmt: skip
    assert found["1.weight"].names == ("1.weight", "2.weight") and found["1.weight"].requires_grad
    assert (found["steps"].kind, found["steps"].persistent, found["steps"].shape) == ("buffer", False, (2,))
    changed = [name for name, parameter in found.items() if parameter.changed]
    assert sorted(changed) == ["0.num_batches_tracked", "0.running_mean", "0.running_var"]
    mean = found["0.running_mean"]
    assert (mean.before.max, mean.stats.max) == (0.0, pytest.approx(0.5))
    assert found["1.weight"].before == found["1.weight"].stats and found["1.weight"].stats.count == 16


def test_shared_module_wrong_name(tmp_path: Path) -> None:
    """A module with several names says all of them, and by which one it was called."""

    def make() -> tuple[nn.Module, dict[str, Any]]:
        shared = nn.Sequential(linear())
        return Does(lambda self, x: self.first(x) + self.second(x) + self.first(x), first=shared, second=shared), {
            "x": ones()
        }

    assert_text_equal(make)
    trace = saved(*make(), tmp_path)
    found = trace.find("first")
    assert [call.called_as for call in found] == ["first", "second", "first"]
    assert {call.path for call in found} == {"first"} and found[0].aliases == ("first", "second")
    assert trace.find("second") == found
    assert [call.called_as for call in trace.find("first.0")] == ["first.0", "second.0", "first.0"]


class Borrowing(nn.Module):
    """Calls modules that it does not register, or not in time."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [linear(), nn.Sequential(linear())]
        self.by_name = {"key": nn.ReLU()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Sequential(nn.Tanh())
        for module in (*self.hidden, self.by_name["key"], nn.Sigmoid(), self.late):
            x = module(x)
        return x


def test_unregistered_modules_missed(tmp_path: Path) -> None:
    """Modules kept in plain lists, made or registered during the forward are traced, and say that they are such."""
    assert_text_equal(lambda: (Borrowing(), {"x": ones()}))
    trace = saved(Borrowing(), ones(), tmp_path)
    assert [(call.path, call.type, call.origin) for call in trace.calls[1:]] == [
        ("hidden[0]", "Linear", "unregistered"),
        ("hidden[1]", "Sequential", "unregistered"),
        ("hidden[1].0", "Linear", "unregistered"),
        ("by_name['key']", "ReLU", "unregistered"),
        ("<Sigmoid>", "Sigmoid", "unregistered"),
        ("late", "Sequential", "late"),
        ("late.0", "Tanh", "late"),
    ]
    assert all(len(call.outputs) == 1 for call in trace.calls)
    assert nodes(tree(tmp_path, "SUMMARY")) == ["Borrowing"]


def test_hook_effects_invisible(tmp_path: Path) -> None:
    """Where hooks replaced what went in or came out, the call says both: forward's own, and the caller's."""

    def make() -> tuple[nn.Module, dict[str, Any]]:
        model = Does(lambda self, x: self.b(self.a(x)), a=Does(lambda self, x: x + 1), b=Does(lambda self, x: x + 1))
        model.a.register_forward_pre_hook(lambda module, args: (args[0] * 10,))
        model.a.register_forward_hook(lambda module, args, output: output * 100)
        model.b.register_forward_hook(lambda module, args, output: None)  # replaces nothing
        return model, {"x": ones()}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path, values="tensors")
    (a,), (b,) = trace.find("a"), trace.find("b")
    numbers = [trace.tensor(slots[0])[0, 0].item() for slots in (a.given, a.inputs, a.outputs, a.returned)]
    assert numbers == [1.0, 10.0, 11.0, 1100.0]
    assert b.given is None and b.returned is None and b.inputs[0] is a.returned[0]


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_scripted_submodules_opaque(tmp_path: Path) -> None:
    """A scripted or traced module inside the model runs as it is, and is recorded as one call."""
    plain = nn.Sequential(linear(), nn.ReLU())
    for number, inner in enumerate((torch.jit.script(plain), torch.jit.trace(plain, ones()))):
        model = Does(lambda self, x: self.after(self.inner(x)), inner=inner, after=linear())
        expected = model(ones())
        trace = fx_debug(model, ones(), save=tmp_path / str(number), values="tensors")
        assert torch.equal(trace.output, expected)
        trace = fxdebug.load(tmp_path / str(number))
        assert calls(trace)[0] == "Does" and {"  inner", "  after"} <= set(calls(trace))
        (call,) = trace.find("inner")
        assert torch.equal(trace.tensor(call.outputs[0]), plain(ones()))
        with drop_in(model, tmp_path / f"drop_in-{number}"):
            model(ones())
        assert nodes(tree(tmp_path / f"drop_in-{number}"))[1] == "  inner"


class Steps(nn.Module):
    """Its forward is a generator, with parts that have parts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(Does(lambda self, x: x + 1))

    def forward(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for _ in range(3):
            x = self.layer(x)
            yield x
        return "done"


def test_generator_forward(tmp_path: Path) -> None:
    """A forward that is a generator has what it called below it and what it yielded as its output."""

    def consume(self: Any, x: torch.Tensor) -> torch.Tensor:
        return sum(self.after(y) for y in self.steps(x))

    def make() -> tuple[nn.Module, dict[str, Any]]:
        return Does(consume, steps=Steps(), after=Does(lambda self, x: x * 2)), {"x": ones()}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path, values="tensors")
    inner = ["    steps.layer", "      steps.layer.0"]
    assert calls(trace) == ["Does", "  steps", *inner * 3, *["  after"] * 3]
    (steps,) = trace.find("steps")
    item = steps.outputs.item
    assert (item.type, item.keys, item.items[-1]) == ("generator", (0, 1, 2, "returned"), "done")
    assert [trace.tensor(value)[0, 0].item() for value in steps.outputs] == [2.0, 3.0, 4.0]
    assert [call.path for call in trace.calls[1:5]] == ["steps", "steps.layer", "steps.layer.0", "after"]


def test_a_generator_that_is_given_up_is_recorded_as_far_as_it_ran(tmp_path: Path) -> None:
    """So is one that raises, is sent things, delegates, or is consumed in another module or thread."""
    closed: list[str] = []

    def talks(self: Any, x: torch.Tensor) -> Iterator[torch.Tensor]:
        try:
            answer = yield x
            answer = yield self.part(answer)
            yield from (self.part(x) for _ in range(5))
        finally:
            closed.append("closed")

    def consume(self: Any, x: torch.Tensor) -> torch.Tensor:
        talk = self.talk(x)
        next(talk)
        y = talk.send(x * 3)
        z = self.reads(talk)
        talk.close()
        assert closed == ["closed"]
        return y + z

    part = Does(lambda self, x: x + 1)
    model = Does(consume, talk=Does(talks, part=part), reads=Does(lambda self, talk: next(talk)))
    trace = saved(model, ones(), tmp_path / "given up", values="tensors")
    assert calls(trace) == ["Does", "  talk", "    talk.part", "    talk.part", "  reads"]
    assert [trace.tensor(value)[0, 0].item() for value in trace.find("talk")[0].outputs] == [1.0, 4.0, 2.0]

    def fails(self: Any, x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield self.part(x)
        raise ValueError("in a step")

    model = Does(lambda self, x: list(self.talk(x)), talk=Does(fails, part=part))
    with pytest.raises(ValueError, match="in a step"):
        fx_debug(model, ones(), save=tmp_path / "raises")
    trace = fxdebug.load(tmp_path / "raises")
    assert calls(trace) == ["Does", "  talk", "    talk.part"]
    assert [call.path for call in trace.calls if call.error and call.error.here] == ["talk"]


def test_coroutines_have_their_calls_below_them(tmp_path: Path) -> None:
    """An asynchronous forward and an asynchronous generator are recorded as a generator is, interleaved or not."""

    async def waits(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.part(x)
        await asyncio.sleep(0)
        return self.part(x)

    async def streams(self: Any, x: torch.Tensor) -> Any:
        for _ in range(2):
            await asyncio.sleep(0)
            yield self.part(x)

    async def both(self: Any, x: torch.Tensor) -> torch.Tensor:
        first, second = await asyncio.gather(self.a(x), self.b(x))
        return first + second + sum([y async for y in self.c(x)])

    part = Does(lambda self, x: x + 1)
    model = Does(
        lambda self, x: asyncio.run(both(self, x)),
        a=Does(waits, p=part),
        b=Does(waits, p=part),
        c=Does(streams, p=part),
    )
    for name in "abc":
        getattr(model, name).part = part
    trace = saved(model, ones(), tmp_path, values="tensors")
    assert torch.equal(trace.tensor(trace.root.outputs[0]), ones() * 10)
    assert [len(trace.find(name)[0].children) for name in "abc"] == [2, 2, 2]
    assert [len(trace.find(name)[0].outputs) for name in "abc"] == [1, 1, 2]
    assert [trace.find(name)[0].outputs.item.type for name in "ac"] == ["coroutine", "async_generator"]


def _rows(row: Any, depth: int = 0) -> list[str]:
    """What is drawn of a trace, one line per row."""
    return ["  " * depth + row.name, *[line for child in row.children for line in _rows(child, depth + 1)]]


def test_pruned_layers_lose_calls_silently(tmp_path: Path) -> None:
    """The trace has every layer, also of a pruned run; what is drawn folds only layers that do the same."""
    assert_text_equal(lambda: (layers(5, odd=2), {"input": ones()}))
    trace = saved(layers(5, odd=2), ones(), tmp_path, prune=True)
    assert len(trace.calls) == 1 + 5 * 3 and trace.settings["prune"] is True
    assert nodes(tree(tmp_path, "SUMMARY")) == ["Sequential", "  0", "    0.0", "    0.1", "  4", "    4.0", "    4.1"]
    assert trace.find("2.1")[0].type == "Tanh"
    assert [line for line in _rows(fold_repeated(trace)) if line.startswith("  ") and line[2] != " "] == [
        "  0", "  1", "  2", "  3", "  4",
    ]  # fmt: skip
    same = saved(layers(5), ones(), tmp_path / "same")
    assert _rows(fold_repeated(same)) == ["Sequential", "  0 … 4 ×5", "    0", "    1"]


def test_pruning_merges_two_stacks(tmp_path: Path) -> None:
    """Of two stacks run one after the other each is folded by itself, and every layer is in the trace."""

    def make() -> tuple[nn.Module, dict[str, Any]]:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            for block in (*self.first, *self.second):
                x = block(x)
            return x

        return Does(forward, first=layers(3), second=nn.ModuleList(layers(4, odd=3))), {"x": ones()}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path, prune=True)
    assert len([call for call in trace.calls if call.depth == 1]) == 7
    assert [line.strip() for line in nodes(tree(tmp_path, "SUMMARY"))[1::3]] == ["first.0", "second.3"]
    drawn = [line.strip() for line in _rows(fold_repeated(trace)) if line.startswith("  ") and line[2] != " "]
    assert drawn == ["first.0 … first.2 ×3", "second.0 … second.2 ×3", "second.3"]


def test_pruning_misses_leaf_layers(tmp_path: Path) -> None:
    """A stack of layers without submodules is one row in what is drawn."""

    def make() -> tuple[nn.Module, dict[str, Any]]:
        return nn.Sequential(*[linear() for _ in range(100)]), {"input": ones()}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path, prune=True)
    assert len(tree(tmp_path, "SUMMARY")["children"]) == 100 == len(trace.calls) - 1
    assert _rows(fold_repeated(trace)) == ["Sequential", "  0 … 99 ×100"]
    assert "0 … 99 ×100" in str(trace)


def test_submodules_lose_gradients(tmp_path: Path) -> None:
    """``fx_debug`` leaves gradients on: a model that needs them in its forward runs, and trains."""

    def force(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        (gradient,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
        return gradient

    def make() -> nn.Module:
        torch.manual_seed(0)
        return Does(force, energy=nn.Sequential(linear(), nn.Tanh(), nn.Linear(4, 1)))

    plain, traced = make(), make()
    plain(ones()).sum().backward()
    trace = fx_debug(traced, ones(), save=tmp_path)
    trace.output.sum().backward()
    pairs = list(zip(plain.parameters(), traced.parameters()))
    assert all((a.grad is None) == (b.grad is None) for a, b in pairs)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs if a.grad is not None)
    loaded = fxdebug.load(tmp_path)
    assert all(call.grad for call in loaded.calls) and loaded.root.outputs[0].requires_grad
    for context in (drop_in, theirs):  # it enforces no_grad: that is its contract
        with pytest.raises(RuntimeError, match="does not require grad"), context(make(), tmp_path / "none") as model:
            model(ones())

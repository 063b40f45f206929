"""``call.fx`` on other inputs: right to the last bit, or a refusal that says why; the model stays as it is."""

from __future__ import annotations

import copy
import dataclasses
import random
import threading
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.errors import UsageError
from support.trees import Does


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)


def traced(model: nn.Module) -> Trace:
    with torch.no_grad():
        trace = fx_debug(model.eval(), torch.randn(3, 4))
    assert trace.root.status == "verified", trace.root.reason
    return trace


def refused(trace: Trace, x: Any) -> str:
    with torch.no_grad(), pytest.raises(fxdebug.UsageError) as caught:
        trace.root.fx(x)
    return str(caught.value)


class CountsInABuffer(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.plain = [torch.zeros(())]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.plain[0].add_(1)
        return self.inner(x) * self.count + self.plain[0]


def test_the_check_on_other_sizes_writes_nothing() -> None:
    model = CountsInABuffer()
    trace = traced(model)
    twin, x = copy.deepcopy(model), torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(trace.root.fx(x), twin(x))
    assert model.count.item() == twin.count.item() == 2  # type: ignore[operator]


class ChildKeeps(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def test_the_check_on_other_sizes_leaves_nothing_with_hooks_of_children() -> None:
    model, seen = ChildKeeps(), []
    trace = traced(model)
    model.inner.register_forward_hook(lambda module, args, output: seen.append(output))
    with torch.no_grad():
        trace.root.fx(torch.randn(5, 4))
    assert seen == []


class PutsInAList(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.given: list[torch.Tensor] = []
        self.inner.register_forward_pre_hook(lambda module, args: (args[0] * self.given[-1],))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.given.append(x.mean(0))
        y: torch.Tensor = nn.Sequential(self.inner)(x)
        self.given.clear()
        return y


def test_a_graph_refuses_where_a_child_takes_a_tensor_that_it_is_not_given() -> None:
    trace = traced(PutsInAList())
    for size in (3, 5):
        assert "Sequential in it takes a tensor that is no argument of it" in refused(trace, torch.randn(size, 4))


class TellsTheChild(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner.rows = x.shape[0]  # type: ignore[assignment]
        return self.inner(x)


def test_a_graph_refuses_where_its_python_changes_what_lasts() -> None:
    assert "changes attributes" in refused(traced(TellsTheChild()), torch.randn(3, 4))


class SetsAnOption(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.options = {"scale": 1.0}
        self.inner.forward = lambda x: x * self.options["scale"]  # type: ignore[method-assign]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.options["scale"] = 3.0
        y = self.inner(x)
        self.options["scale"] = 1.0
        return y


HERE = threading.local()


class SetsAVariableOfTheThread(Layer):
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * getattr(HERE, "scale", 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.scales = self.Scales()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        HERE.scale = 3.0
        y = self.scales(x)
        del HERE.scale
        return y


@pytest.mark.parametrize("kind", [SetsAnOption, SetsAVariableOfTheThread])
def test_a_graph_refuses_where_its_python_changes_things_around_a_call_and_puts_them_back(kind: Any) -> None:
    trace = traced(kind())
    for size in (3, 5):
        assert "changes attributes or other objects around a call" in refused(trace, torch.randn(size, 4))


class CallsWhatNobodyRegistered(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.Linear(4, 4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden[0](self.inner(x))


class CallsAModuleThatIsCompiledInPlace(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner.compile(backend="eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


@pytest.mark.parametrize("kind", [CallsWhatNobodyRegistered, CallsAModuleThatIsCompiledInPlace])
def test_what_we_put_in_front_of_modules_is_no_change_of_the_programs(kind: Any) -> None:
    trace, x = traced(kind()), torch.randn(3, 4)
    with torch.no_grad():
        assert trace.root.fx(x).shape == x.shape


@dataclasses.dataclass
class Notes:
    values: dict[str, torch.Tensor]
    sizes: list[int]


class HandsOnNotes(Layer):
    class Writes(nn.Module):
        def forward(self, notes: Notes) -> Notes:
            notes.values["y"] = notes.values["x"] + 1
            notes.sizes.append(1)
            return notes

    def __init__(self) -> None:
        super().__init__()
        self.writes = self.Writes()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.writes(Notes({"x": self.inner(x)}, [])).values["y"] * 2


def test_what_a_graph_hands_to_a_child_can_be_written_to() -> None:
    model = HandsOnNotes()
    trace, x = traced(model), torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(trace.root.fx(x), model(x))


class DropsALayer(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if random.random() < 2 else x


def test_a_graph_refuses_where_its_python_draws_random_numbers() -> None:
    assert "draws random numbers of its own" in refused(traced(DropsALayer()), torch.randn(3, 4))


class Reseeds(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return self.inner(x) + torch.rand(4)


def test_a_body_that_sets_the_random_state_is_recorded() -> None:
    trace = fx_debug(Reseeds(), torch.randn(3, 4))
    assert trace.root.status == "recorded"
    assert "sets the state of torch's random numbers" in trace.root.reason


class Doubles(nn.Linear):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) * 2


def test_what_a_call_adds_to_a_forward_is_computed_once() -> None:
    model = ChildKeeps()
    model.inner = Doubles(4, 4)
    trace, x = traced(model), torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(trace.root.fx(x), model(x))


class OddNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module('<b a="1">', nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._modules['<b a="1">'](x)  # type: ignore[misc]


def test_a_graph_runs_whatever_its_modules_are_called() -> None:
    model = OddNames()
    trace, x = traced(model), torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(trace.root.fx(x), model(x))


def test_a_graph_refuses_when_the_module_is_in_another_mode() -> None:
    class Drops(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(self.inner(x), 0.5, self.training)

    model = Drops()
    trace = traced(model)
    model.train()
    assert "does something else" in refused(trace, torch.randn(3, 4))


class FillsParts(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        whole = x.new_empty(x.shape[0], 8)
        whole[..., :4].copy_(y)
        whole[..., 4:].copy_(x)
        return whole * 2


def test_a_tensor_that_is_filled_part_by_part_is_verified_with_gradients() -> None:
    model = FillsParts()
    trace, x = fx_debug(model, torch.randn(3, 4)), torch.randn(5, 4)
    assert (trace.root.status, trace.root.reason) == ("verified", "")
    mine, theirs = trace.root.fx(x), model(x)
    assert torch.equal(mine, theirs) and mine.requires_grad
    mine.sum().backward()
    gradient = model.inner.weight.grad
    model.inner.weight.grad = None
    theirs.sum().backward()
    assert gradient is not None and torch.equal(gradient, model.inner.weight.grad)


class MakesAnActivation(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.Softmax(dim=-1)(self.inner(x))


def test_a_module_made_in_the_body_is_known_again_for_other_sizes() -> None:
    model = MakesAnActivation()
    trace, x = traced(model), torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(trace.root.fx(x), model(x))


class Routes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = (x.sum(-1) > 0).nonzero()[:, 0]
        y = torch.zeros_like(x)
        y[rows] = self.inner(x[rows])
        return y


def test_what_depends_on_values_is_checked_on_copies() -> None:
    model = Routes()
    trace, x = traced(model), torch.randn(9, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given = x.clone()
    with torch.no_grad():
        assert torch.equal(trace.root.fx(x), model(x))
    assert torch.equal(x, given)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


# Inputs of the same sizes that differ in something else ------------------------------------------


def added_to_a_copy_or_to_itself(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """``contiguous`` gives back its input where that is contiguous already, and a copy elsewhere."""
    z = x * 1
    z.contiguous().add_(1)
    return z


def by_gradient(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if x.requires_grad else x * 2


def by_layout(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if x.is_contiguous() else x * 2


def by_class(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if isinstance(x, nn.Parameter) else x * 2


OTHERS = [
    (added_to_a_copy_or_to_itself, torch.rand(3, 3).t()),
    (by_layout, torch.rand(3, 3).t()),
    (by_gradient, torch.rand(3, 3, requires_grad=True)),
    (by_class, nn.Parameter(torch.rand(3, 3), requires_grad=False)),
]


@pytest.mark.parametrize(("body", "other"), OTHERS, ids=[body.__name__ for body, _ in OTHERS])
def test_what_the_body_does_otherwise_for_is_refused(body, other):
    trace = fx_debug(Does(body), torch.rand(3, 3))
    assert trace.root.status == "verified"
    with pytest.raises(UsageError, match=r"^the graph of #0 does not hold here: "):
        trace.root.fx(other)


def test_another_layout_is_no_reason_to_refuse_by_itself():
    model = Does(lambda self, x: self.a(x).relu().sum(-1), a=nn.Linear(3, 3))
    graph = fx_debug(model, torch.rand(3, 3)).root.fx
    for other in (torch.rand(3, 3).t(), torch.rand(6, 3)[::2], torch.rand(1, 3).expand(3, 3)):
        assert torch.equal(graph(other), model(other))


class Counts(Layer):
    calls = 0
    seen: list[int] = []
    latest: Any = None

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.cache: dict[str, int] = {"rows": 0}
        self.rows: list[int] = []
        self.latest = Counts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.what == "attribute":
            self.calls += 1
        elif self.what == "child":
            self.inner.rows = x.shape[0]  # type: ignore[assignment]
        elif self.what == "dict":
            self.cache["rows"] = x.shape[0]
        elif self.what == "empty list":
            self.rows.append(x.shape[0])
        elif self.what == "class":
            Counts.calls += 1
        elif self.what == "list of a class":
            self.seen.append(1)
        else:
            global CALLS
            CALLS += 1
        return self.inner(x)


CALLS = 0


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("attribute", "Counts.calls"),
        ("child", "Linear.rows"),
        ("dict", "Counts.cache"),
        ("empty list", "Counts.rows"),
        ("class", "Counts.calls"),
        ("list of a class", "a list"),
        ("global", "CALLS"),
    ],
)
def test_a_refusal_names_what_the_body_changes(what: str, name: str) -> None:
    assert f"other objects that last ({name}), and a graph does not" in refused(traced(Counts(what)), torch.ones(3, 4))

"""The graph of a verified call runs on the inputs it was recorded with, however the body hands things to its calls."""

from __future__ import annotations

import copy
import enum
import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn.utils import prune

from fxdebug import UsageError, fx_debug
from support.same import difference
from support.trees import Does

X = torch.arange(8.0).view(2, 4) / 8


def linear(made_by: Callable[..., Any], *args: Any) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the old functions are deprecated, and in many models
        made_by(layer, *args)
    return layer


class Doubled:
    """A hook that makes the weight, as those of ``torch.nn.utils`` do."""

    __module__ = "torch.nn.utils.doubled"

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        module.scaled = module.weight * 2  # type: ignore[operator]


class ReadsScaled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.scaled)


def with_hook() -> nn.Module:
    layer = ReadsScaled(4, 4)
    layer.register_forward_pre_hook(Doubled())
    return layer


WEIGHTS = {
    "pruned": lambda: linear(prune.l1_unstructured, "weight", 0.5),
    "pruned twice": lambda: linear(prune.random_unstructured, "bias", 0.5),
    "weight_norm": lambda: linear(nn.utils.weight_norm),
    "spectral_norm": lambda: linear(nn.utils.spectral_norm),
    "parametrized": lambda: linear(nn.utils.parametrizations.weight_norm),
    "orthogonal": lambda: linear(nn.utils.parametrizations.orthogonal),
    "another hook": with_hook,
    "deep inside": lambda: nn.Sequential(nn.ReLU(), linear(prune.l1_unstructured, "weight", 0.5)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_hooks_make_reach_their_modules(name: str) -> None:
    layer = WEIGHTS[name]()
    model = Does(lambda self, x: self.a(x) + self.a(x * 2), a=layer).eval()
    call = fx_debug(model, X).root
    before = [dict(vars(module)) for module in model.modules()]
    assert call.status == "verified", call.reason
    assert torch.equal(call.fx(X), model(X)) and torch.equal(copy.copy(call.fx)(X), model(X))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    other = call.fx(X[:1] + 1)  # made with the new weights, and nothing is left in the module
    assert [list(vars(module)) for module in model.modules()] == [list(each) for each in before]
    assert torch.equal(other, model(X[:1] + 1))


def test_a_weight_that_is_handed_over_is_in_the_graph() -> None:
    model = Does(lambda self, x: self.a(x), a=linear(prune.l1_unstructured, "weight", 0.5))
    trace = fx_debug(model, X)
    assert trace.root.graph is not None
    assert [op.op for op in trace.root.graph.ops][-5:] == ["mul", "get_attr", "setattr", "Linear", "output"]
    assert "setattr(a, 'weight', mul)" in trace.root.fx.code
    assert "self.weight" in trace.find("a")[0].fx.code


def test_a_weight_taken_from_elsewhere_is_still_refused() -> None:
    """An attribute has the tensor, too, but the module reads it from a list: the graph would not renew it there."""

    class Reads(nn.Module):
        memory: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.memory[0]

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        self.inner.seen = made
        self.inner.memory[:] = [made]
        y: torch.Tensor = self.inner(x)
        self.inner.memory.clear()
        del self.inner.seen
        return y

    call = fx_debug(Does(body, inner=Reads()), X).root
    with pytest.raises(UsageError, match="does not hold here"):
        call.fx(X + 1)


class Mode(enum.Enum):
    DOUBLE = 2


class Applies(nn.Module):
    def forward(self, x: torch.Tensor, f: Any) -> Any:
        return f(x)


class Multiplies(nn.Module):
    def forward(self, x: torch.Tensor, mode: Mode) -> torch.Tensor:
        return x * 2 if mode is Mode.DOUBLE else x


class Chains(nn.Module):
    def forward(self, x: torch.Tensor, layers: nn.ModuleList) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return x


class Reads(nn.Module):
    def forward(self, x: torch.Tensor, module: nn.Linear) -> torch.Tensor:
        return nn.functional.linear(x, module.weight)


LAYERS = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
RESHAPES = Does(lambda self, x, size: x.reshape(size))
PASSED: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "a registered module": (Does(lambda self, x: self.c(x, self.act) + 1, c=Applies(), act=nn.Linear(4, 4)), (X,)),
    "a list of modules": (Does(lambda self, x: self.c(x, self.layers), c=Chains(), layers=LAYERS), (X,)),
    "a module for its weight": (Does(lambda self, x: self.c(x, self.other), c=Reads(), other=nn.Linear(4, 4)), (X,)),
    "a module among the inputs": (Applies(), (X, nn.Linear(4, 4))),
    "a module passed on": (Does(lambda self, x, m: self.c(x, m), c=Applies()), (X, nn.Sequential(nn.Linear(4, 2)))),
    "the module itself": (Does(lambda self, x: self.c(x, self).relu(), c=Does(lambda s, x, m: x * m.two)), (X,)),
    "a function": (Does(lambda self, x: self.c(x, torch.relu), c=Applies()), (X,)),
    "a function among the inputs": (Applies(), (X, nn.functional.gelu)),
    "a method of Tensor": (Applies(), (X, torch.Tensor.neg)),
    "a partial": (Applies(), (X, functools.partial(torch.add, alpha=2, other=1))),
    "a member of an enum": (Does(lambda self, x: self.c(x, Mode.DOUBLE), c=Multiplies()), (X,)),
    "an enum among the inputs": (Multiplies(), (X, Mode.DOUBLE)),
    "a torch.Size": (Does(lambda self, x, size: self.c(x, size), c=RESHAPES), (X, torch.Size([4, 2]))),
    "the size of an input": (Does(lambda self, x, y: self.c(x, y.shape), c=RESHAPES), (X, X.view(8))),
    "a size in a list": (Does(lambda self, x, sizes: x.view(sizes[0])), (X, [torch.Size([8])])),
}  # fmt: skip
PASSED["the module itself"][0].two = 2.0  # type: ignore[assignment]


@pytest.mark.parametrize("name", PASSED)
def test_modules_functions_and_sizes_can_be_passed(name: str) -> None:
    model, inputs = PASSED[name]
    for call in fx_debug(model, inputs).calls[:2]:
        assert call.status == "verified", call.reason
    call = fx_debug(model, inputs).root
    assert torch.equal(call.fx(*inputs), model(*inputs))


def test_another_function_is_refused() -> None:
    call = fx_debug(Applies(), (X, torch.relu)).root
    with pytest.raises(UsageError, match="the builtin_function_or_method that it was recorded with is expected"):
        call.fx(X, torch.tanh)


CHOSEN: list[Any] = [torch.relu]


def test_a_body_that_passes_another_function_is_refused() -> None:
    call = fx_debug(Does(lambda self, x: self.c(x, CHOSEN[0]), c=Applies()), X).root
    assert torch.equal(call.fx(X), X.relu())
    CHOSEN[0] = torch.neg
    with pytest.raises(UsageError, match="does not hold here"):
        call.fx(X)
    CHOSEN[0] = torch.relu


def test_an_attribute_that_is_passed_is_looked_up_anew() -> None:
    model = Does(lambda self, x: self.c(x, self.f), c=Applies(), f=torch.relu)
    graph = fx_debug(model, X).root.fx
    model.f = torch.neg  # type: ignore[assignment]
    assert torch.equal(graph(X), X.neg())


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(torch.relu(x) + 1))


GENERATED: dict[str, Callable[[], nn.Module]] = {
    "symbolically traced": lambda: fx.symbolic_trace(Small()),
    "scripted": lambda: torch.jit.script(Small()),
    "traced": lambda: torch.jit.trace(Small().eval(), X),
    "exported": lambda: torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (X,)).module(),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", GENERATED)
def test_children_that_torch_made(name: str, training: bool) -> None:
    child = GENERATED[name]()
    model = Does(lambda self, x: self.a(x) + self.b(x * 2), a=child, b=nn.Sequential(child))
    if name != "exported":
        model.train(training)
    call = fx_debug(model, X).root
    assert call.status == "verified", call.reason
    state = copy.deepcopy(model.state_dict())
    found = call.fx(X)
    model.load_state_dict(state)
    assert torch.equal(found, model(X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("name", GENERATED)
def test_graphs_of_children_that_torch_made_hold_after_that_of_their_caller_ran(name: str, copied: bool) -> None:
    """Torch compiles a graph anew where it becomes part of another, and is then another function of the same text."""
    child = GENERATED[name]()
    model = Does(lambda self, x: self.a(x) + 1, a=child)
    if name != "exported":
        model.eval()
    forward = getattr(type(child), "forward", None)
    trace = fx_debug(model, X)
    graph = copy.copy(trace.root.fx) if copied else trace.root.fx
    assert torch.equal(graph(X), model(X))
    assert copied or getattr(type(child), "forward", None) is forward
    for call in trace.calls[1:]:
        if call.status == "verified" and call.parent is trace.root:
            assert torch.equal(call.fx(X), child(X))


@pytest.mark.parametrize("finds_other", [False, True])
def test_a_forward_of_the_same_text_is_another_if_it_finds_other_objects(finds_other: bool) -> None:
    child = fx.symbolic_trace(Small()).eval()
    call = fx_debug(Does(lambda self, x: self.a(x), a=child), X).find("a")[0]
    generated: Any = type(child).forward
    names = dict(generated.__globals__) | ({"torch": object()} if finds_other else {})
    type(child).forward = types.FunctionType(generated.__code__, names, "forward")  # type: ignore[method-assign]
    if finds_other:
        with pytest.raises(UsageError, match="Small ran another forward than it has"):
            call.fx(X)
    else:
        assert torch.equal(call.fx(X), child(X))


def scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
    sparse = x.to_sparse_csr()
    assert sparse.layout is torch.sparse_csr and sparse.is_sparse_csr and not sparse.is_sparse
    parts = sparse.crow_indices(), sparse.col_indices(), sparse.values() * 2
    made: torch.Tensor = torch.sparse_csr_tensor(*parts, size=sparse.shape) @ x.t()
    return made


def written_inside(self: Any, x: torch.Tensor) -> torch.Tensor:
    sparse = x.to_sparse().coalesce()
    sparse.values().mul_(3)
    return sparse.to_dense() + len(sparse.shape)


SPARSE: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "multiplied": lambda self, x: torch.sparse.mm(x.to_sparse(), x.t()),
    "asked": lambda self, x: x.to_sparse().to_dense() if x.to_sparse().is_sparse else x,
    "by columns": lambda self, x: x.to_sparse_csc().to_dense() * 2,
    "made of parts": scaled,
    "written inside": written_inside,
    "passed to a child": lambda self, x: self.c(x.to_sparse()),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensors_inside_a_body(name: str) -> None:
    model = Does(SPARSE[name], c=Does(lambda self, s: torch.sparse.sum(s, 0).to_dense()))
    x = (X - 0.3).relu()
    trace = fx_debug(model, x)
    assert {call.status for call in trace.calls} == {"verified"}, [call.reason for call in trace.calls]
    assert torch.equal(trace.root.fx(x), model(x))
    assert torch.equal(trace.root.fx(X[:1]), model(X[:1]))


def test_a_body_that_asks_how_a_sparse_tensor_lies_in_memory_is_recorded() -> None:
    trace = fx_debug(Does(lambda self, x: x * 2 if x.to_sparse().is_contiguous() else x), X)
    assert trace.root.reason.startswith("it asks a tensor for is_contiguous, which a symbol does not have")


class Boxed:
    """What some libraries return: an object with a tensor in it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.parts = [tensor * 2]
        self.table = {"more": (tensor + 1,)}

    def doubled(self) -> torch.Tensor:
        return self.tensor * 2


class Boxes(nn.Module):
    def forward(self, x: torch.Tensor) -> Boxed:
        return Boxed(x.relu())


class Opens(nn.Module):
    def forward(self, boxed: Boxed) -> torch.Tensor:
        return boxed.parts[0] - 1


OPENED: dict[str, Callable[..., Any]] = {
    "an attribute": lambda self, x: self.boxes(x).tensor,
    "a method": lambda self, x: self.boxes(x).doubled() + 1,
    "an item": lambda self, x: self.boxes(x).parts[0] * 3,
    "deep inside": lambda self, x: self.boxes(x).table["more"][0].sum(),
    "passed on": lambda self, x: self.opens(self.boxes(x)) * 2,
    "two of them": lambda self, x: self.boxes(x).tensor + self.boxes(x * 2).parts[0],
}


@pytest.mark.parametrize("way", OPENED)
def test_tensors_inside_objects_that_calls_return(way: str) -> None:
    model, other = Does(OPENED[way], boxes=Boxes(), opens=Opens()), torch.randn(3, 4)
    trace = fx_debug(model, X)
    assert trace.root.status == "verified", trace.root.reason
    assert torch.equal(trace.root.fx(X), model(X))
    assert torch.equal(trace.root.fx(other), model(other))
    assert torch.equal(copy.copy(trace.root.fx)(other), model(other))


def renews(self: Any, x: torch.Tensor) -> Boxed:
    boxed: Boxed = self.boxes(x)
    boxed.tensor = boxed.tensor + 1
    return boxed


def labels(self: Any, x: torch.Tensor) -> Boxed:
    boxed: Boxed = self.boxes(x)
    boxed.label = "seen"  # type: ignore[attr-defined]
    return boxed


def fills(self: Any, x: torch.Tensor) -> Boxed:
    boxed: Boxed = self.boxes(x)
    boxed.parts.append(x.sum())
    return boxed


def labels_for_another(self: Any, x: torch.Tensor) -> torch.Tensor:
    boxed: Boxed = self.boxes(x)
    boxed.parts.reverse()
    boxed.label = "seen"  # type: ignore[attr-defined]
    result: torch.Tensor = self.opens(boxed)
    return result


@pytest.mark.parametrize("body", [renews, labels, fills, labels_for_another])
def test_an_object_that_the_body_changes_is_never_returned_unchanged(body: Callable[..., Any]) -> None:
    model, other = Does(body, boxes=Boxes(), opens=Opens()), torch.randn(3, 4)
    call = fx_debug(model, X).root
    for x in (X, other):
        assert difference(call.fx(x), model(x)) is None
        assert difference(copy.copy(call.fx)(x), model(x)) is None

"""An operation that returns its argument gives the tensor a second name; what the code used later is in the graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import Trace, fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates

Operation = Callable[[Tensor], Tensor]

RETURN_THEIR_ARGUMENT: dict[str, Operation] = {
    "contiguous": lambda y: y.contiguous(),
    "float": lambda y: y.float(),
    "to": lambda y: y.to(torch.float32),
    "cpu": lambda y: y.cpu(),
    "type_as": lambda y: y.type_as(y),
    "dropout": lambda y: F.dropout(y, training=False),
    "positive": lambda y: +y,
    "real": lambda y: y.real,
    "flatten": lambda y: y.flatten(1),
    "as_tensor": torch.as_tensor,
}
RETURN_ANOTHER: dict[str, Operation] = {
    "view": lambda y: y.view(2, 4),
    "reshape": lambda y: y.reshape(2, 4),
    "expand": lambda y: y.expand(2, 4),
    "detach": lambda y: y.detach(),
}
WRITE: dict[str, Operation] = {
    "relu": lambda y: F.relu(y, inplace=True),
    "add": lambda y: y.add_(0),
    "mul": lambda y: torch.mul(y, 2, out=y),
    "requires_grad": lambda y: y.requires_grad_(False),
}
MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": contextlib.nullcontext}


class Applies(nn.Module):
    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.first, self.second, self.operation = nn.Linear(4, 4), nn.Linear(4, 4), operation

    def forward(self, x: Tensor) -> Any:
        y = self.first(x).detach()
        z = self.operation(y)
        w = self.operation(y)
        return self.second(y), self.second(z), torch.cat([y, z, w], 1)


def lines(trace: Trace, call: str = "") -> list[str]:
    """Return the statements of a verified graph."""
    found = trace.find(call)[0] if call else trace.root
    assert found.status == "verified", found.reason
    return [line.split(";")[0].strip() for line in found.code.splitlines()[1:]]


def sources(trace: Trace, operation: str) -> list[str]:
    """Return the operations that feed ``second``, in its two calls, and ``cat``; without numbers of repeated names."""
    return [
        " ".join(node.id.rpartition("/")[2].partition("#")[0] for node in trace.producers(place))
        for place in ("second#0", "second#1", f"{trace.root.type}#0/cat")
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RETURN_THEIR_ARGUMENT | RETURN_ANOTHER)
def test_branches_that_leave_one_tensor_stay_side_by_side(name: str, mode: str) -> None:
    model, x = Applies((RETURN_THEIR_ARGUMENT | RETURN_ANOTHER)[name]), torch.randn(2, 4)
    with MODES[mode]():
        trace = fx_debug(model, x)
        seen = lines(trace)
        same = [torch.equal(a, b) for a, b in zip(trace.root.fx(x), model(x))]
    one, two = (line.partition(" = ")[0] for line in seen[2:4])
    assert [line.partition(" = ")[2] for line in seen[4:6]] == ["self.second(detach)", f"self.second({one})"]
    assert f"[{seen[1].partition(' = ')[0]}, {one}, {two}]" in seen[6]
    assert same == [True] * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRITE)
def test_what_an_operation_writes_to_comes_from_it_under_every_name(name: str, mode: str) -> None:
    with MODES[mode]():
        trace = fx_debug(Applies(WRITE[name]), torch.randn(2, 4))
    made = lines(trace)[3].partition(" = ")[0]
    assert [sources(trace, name)[i] for i in (0, 1)] == [made, made]
    assert f"[{made}, {made}, {made}]" in lines(trace)[6]


class Block(nn.Module):
    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.first, self.between, self.second = nn.Linear(4, 4), between, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = self.between(y)
        return self.second(y) + z


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_child_that_writes_is_told_from_one_that_hands_on_though_the_graphs_match(mode: Any) -> None:
    forget_templates()
    blocks = nn.Sequential(*map(Block, (nn.ReLU(inplace=True), nn.Identity(), nn.ReLU(), nn.ReLU(inplace=True))))
    with mode():
        trace = fx_debug(blocks, torch.randn(2, 4))
    assert [lines(trace, str(k))[2] for k in range(4)] == [
        "second = self.second(between)", "second = self.second(first)", "second = self.second(first)",
        "second = self.second(between)",
    ]  # fmt: skip


class Setting:
    def __init__(self, number: int) -> None:
        self.number = number


class ByNumber(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.drop, self.second = number, nn.Dropout(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.drop(x)
        return self.second(z if self.number else x)


class BySetting(ByNumber):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.config = Setting(number)

    def forward(self, x: Tensor) -> Tensor:
        z = self.drop(x)
        return self.second(z if self.config.number else x)


@pytest.mark.parametrize("kind", [ByNumber, BySetting])
def test_a_layer_that_chooses_by_a_number_has_a_graph_of_its_own(kind: Any) -> None:
    forget_templates()
    trace = fx_debug(nn.Sequential(kind(0), kind(1), kind(0)).eval(), torch.randn(2, 4))
    assert [lines(trace, str(k))[1] for k in range(3)] == [
        "second = self.second(x)", "second = self.second(drop)", "second = self.second(x)",
    ]  # fmt: skip


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.float()
        return F.linear(F.linear(x, weight), self.weight)


def test_a_parameter_that_an_operation_returned_keeps_its_own_name() -> None:
    trace = fx_debug(Weights(), torch.randn(2, 4))
    assert lines(trace)[:4] == [
        "weight = self.weight", "float_1 = weight.float()", "linear = torch._C._nn.linear(x, float_1)",
        "linear_1 = torch._C._nn.linear(linear, weight)",
    ]  # fmt: skip


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor, seen: list[Tensor]) -> tuple[Tensor, Tensor]:
        seen.append(x)
        return self.inner(x) * mask, mask


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        first, seen = mask, []  # type: ignore[var-annotated]
        for layer in self.layers:
            x, mask = layer(x, mask, seen)
        return torch.cat([x * mask, first, *seen], 1)


def test_what_a_child_hands_on_beside_its_result_comes_from_the_child() -> None:
    trace = fx_debug(Layers(), (torch.randn(2, 4), torch.ones(2, 4)))
    text = trace.root.code
    assert 'getattr(self.layers, "1")(getitem, getitem_1, ' in text and "getitem_2.mul(getitem_3)" in text
    assert "torch.cat([mul, mask, x, getitem], 1)" in text


class Pairs(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = nn.Identity()((x, x))
        return a + b, b


def test_two_results_that_are_one_tensor_are_told_apart() -> None:
    assert lines(fx_debug(Pairs(), torch.randn(2))) == [
        "_unregistered_identity_0 = self._unregistered_Identity_0((x, x))",
        "getitem = _unregistered_identity_0[0]", "getitem_1 = _unregistered_identity_0[1]",
        "add = getitem.add(getitem_1)", "return (add, getitem_1)",
    ]  # fmt: skip


class ComparesByIs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.second = nn.Dropout(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.drop(x)
        return self.second(x) + 1 if z is x else self.second(z)


class LooksUpById(ComparesByIs):
    def forward(self, x: Tensor) -> Tensor:
        z, known = self.drop(x), dict[int, Tensor]()
        for tensor in (x, z):
            if id(tensor) not in known:
                known[id(tensor)] = self.second(tensor)
        return known[id(x)] + known[id(z)]


@pytest.mark.parametrize("kind", [ComparesByIs, LooksUpById])
def test_code_that_compares_tensors_by_identity_gets_the_object_and_the_graph_says_so(kind: Any) -> None:
    model, x = kind().eval(), torch.randn(2, 4)
    trace = fx_debug(model, x)
    assert lines(trace)[1] == "second = self.second(drop)"
    assert "is the last such operation" in trace.root.reason
    assert torch.equal(trace.root.fx(x), model(x))


class TwoDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.float()
        return x * 2, self.second(y)


def test_the_graph_holds_where_the_operation_returns_another_tensor() -> None:
    model, x = TwoDtypes(), torch.randn(2, 4)
    graph = fx_debug(model, x).root.fx
    for given in (x, x.bfloat16()):
        assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(graph(given), model(given)))


class MutatesTheOtherName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keep, self.second = nn.Identity(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        z = self.keep(y)
        z.add_(1)
        first = self.second(y)
        y[:, 0] = 5
        return self.second(z) + first


def test_a_write_through_one_name_is_seen_through_the_other() -> None:
    model, x = MutatesTheOtherName(), torch.randn(2, 4)
    trace = fx_debug(model, x)
    assert [node.id for node in trace.producers("second#0")] == ["MutatesTheOtherName#0/add"]
    assert "MutatesTheOtherName#0/setitem" in [node.id for node in trace.producers("second#1")]
    assert torch.equal(trace.root.fx(x), model(x))


class ThroughNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        z = self.drop(y)
        return torch.cat([y, z, torch.from_numpy(y.numpy())], 1), y


def test_a_recorded_graph_takes_the_last_operation_that_returned_a_tensor() -> None:
    trace = fx_debug(ThroughNumpy().eval(), torch.randn(2, 4))
    assert trace.root.status == "recorded"
    assert "numpy = drop.numpy()" in trace.root.code and "cat([drop, drop, " in trace.root.code
    assert trace.root.code.endswith("return (cat, drop)")

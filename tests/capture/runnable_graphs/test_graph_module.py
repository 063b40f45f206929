"""``call.fx`` in the user's hands: changed, copied, saved, compiled, and asked after its surroundings changed."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.capture.graphs.known_templates import traits_of


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.l(x))


class Rows(nn.Module):
    """Python decides by a size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for row in range(x.shape[0]):
            x = x + row
        return x


def with_tanh(made: Any) -> Any:
    for node in made.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.tanh
    made.recompile()
    return made


# Changed and copied ------------------------------------------------------------------------------


def test_a_graph_that_is_changed_is_the_user_s_and_no_other_call_s() -> None:
    model, x = nn.Sequential(Layer(), Layer()), torch.randn(2, 3)
    trace = fx_debug(model, x)
    first, second = trace.find("0")[0], trace.find("1")[0]
    code, edges = second.code, sorted(trace.graph.edges)
    changed = with_tanh(first.fx)
    assert torch.equal(changed(x), torch.tanh(model[0].l(x)))
    assert "tanh" in changed.code
    assert (first.code, second.code, sorted(trace.graph.edges)) == (code, code, edges)
    assert torch.equal(first.fx(x), model[0](x)) and torch.equal(second.fx(x), model[1](x))
    again = fx_debug(model, x)
    assert [again.find("0")[0].code, again.find("1")[0].fx.code] == [code, second.fx.code]


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_a_copy_is_a_plain_graph_module_that_asks_nothing(made: Any) -> None:
    model, x = Layer(), torch.randn(2, 3)
    plain = made(fx_debug(model, x).root.fx)
    assert isinstance(plain, torch.fx.GraphModule) and not hasattr(plain, "guards")
    assert torch.equal(plain(x), model(x))
    assert (plain.l.weight is model.l.weight) == (made is copy.copy)
    rows = made(fx_debug(Rows(), x).root.fx)
    assert torch.equal(rows(torch.zeros(3, 3)), torch.ones(3, 3))  # as two rows are


def test_torch_s_own_tools_take_it() -> None:
    import torch.fx.experimental.optimization
    import torch.fx.passes.shape_prop

    model, x = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3)).eval(), torch.randn(1, 2, 5)
    made = fx_debug(model, x).root.fx
    for other in (
        torch.fx.symbolic_trace(made),
        torch.fx.Transformer(made).transform(),
        torch.export.export(made, (x,), strict=False).module(),
        torch.jit.trace(made, (x,)),
    ):
        assert torch.equal(other(x), model(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fused = torch.fx.experimental.optimization.fuse(made)
    assert torch.allclose(fused(x), model(x), atol=1e-6)
    assert [type(inner) for inner in fused.children()] == [nn.Conv1d]
    assert torch.equal(torch.fx.passes.shape_prop.ShapeProp(made).propagate(x), model(x))


# Asked, however it is called ---------------------------------------------------------------------


def compiled(made: Any) -> Any:
    return torch.compile(lambda x: made(x) + 0, backend="eager")


@pytest.mark.parametrize("way", [
    lambda made: made, lambda made: made.forward, lambda made: torch.compile(made, backend="eager"), compiled,
], ids=["called", "forward", "compiled", "in-a-compiled-function"])  # fmt: skip
def test_it_is_asked_however_it_is_called(way: Any) -> None:
    model = nn.Sequential(Rows())
    run = way(fx_debug(model, torch.randn(2, 3)).find("0")[0].fx)
    same, other = torch.randn(2, 3), torch.randn(3, 3)
    for _ in range(2):
        assert torch.equal(run(same), model(same))
        with pytest.raises(fxdebug.UsageError, match="as the model is now, it runs more operations"):
            run(other)


def test_a_run_of_a_graph_can_be_traced_and_hooks_on_it_are_called() -> None:
    model, x = Layer(), torch.randn(2, 3)
    made = fx_debug(model, x).root.fx
    heard: list[torch.Tensor] = []
    made.register_forward_hook(lambda module, args, output: heard.append(output))
    trace = fx_debug(made, x)
    assert [call.path for call in trace.calls] == ["", "l"]
    assert torch.equal(heard[0], model(x)) and len(heard) == 1


# What stands where something else stood ----------------------------------------------------------


def test_a_number_that_lies_where_another_lay_is_another() -> None:
    namespace: dict[str, Any] = {"__name__": "made_up", "nn": nn, "scale": float("1.25")}
    exec("class Scales(nn.Module):\n    def forward(self, x):\n        return x * scale\n", namespace)
    model, x = namespace["Scales"](), torch.ones(2)
    made = fx_debug(model, x).root.fx
    assert torch.equal(made(x), model(x))
    for _ in range(20):  # Python gives memory out again that it has just got back
        exec("scale = scale * 2\nscale = scale * 2", namespace)
        with pytest.raises(fxdebug.UsageError, match="as the model is now, it does something else"):
            made(x)


def test_a_function_that_lies_where_another_lay_is_another() -> None:
    layer = nn.ReLU.__new__(Layer)
    nn.Module.__init__(layer)
    layer.function = lambda x: x
    before, place = traits_of(layer), id(layer.function)
    met = False
    for _ in range(1000):
        del layer.function
        layer.function = lambda x: x
        met = met or id(layer.function) == place
        assert traits_of(layer) != before
    assert met  # otherwise this shows nothing
    layer.other = layer.function
    same = traits_of(layer)
    assert traits_of(layer) == same


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_a_call_is_said_to_be_does_not_depend_on_chance() -> None:
    class Passes(nn.Module):
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.function = function

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.function(x)

    found: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for number in range(40):
        nested = number % 2 == 1
        x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) if nested else torch.eye(3)
        root = fx_debug(Passes(lambda x: x), x).root
        found[nested].add((root.status, root.reason))
    assert found[False] == {("verified", "")}
    assert found[True] == {("recorded", "it cannot be run again with a symbol for a nested tensor")}


# Whatever a body decides by ----------------------------------------------------------------------

CONFIG: dict[str, Any] = {"scale": 2.0, "deep": {"er": {"still": [1.0]}}}


class Slotted:
    __slots__ = ("scale",)


def by_default(x: torch.Tensor, scale: list[float] = [2.0]) -> torch.Tensor:  # noqa: B006
    return x * scale[0]


class Decides(nn.Module):
    """By many things; each is set by one of ``CHANGES``."""

    flags = {"on": True}

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()
        self.slotted, self.names, self.many = Slotted(), {"a"}, [1.0] * 300
        self.slotted.scale = 2.0
        self.hidden = [nn.Dropout(0.5).eval()]
        self.eval()

    def forward(self, x: torch.Tensor, *, more: dict[str, float] = {"plus": 1.0}) -> torch.Tensor:  # noqa: B006
        x = self.act(self.linear(x)) * CONFIG["scale"] * CONFIG["deep"]["er"]["still"][0] * self.slotted.scale
        x = by_default(x) * self.many[-1] + more["plus"]
        if "b" in self.names or not self.flags["on"] or self.hidden[0].training or isinstance(self.act, nn.Tanh):
            x = -x
        if self.linear.weight is self.other.weight or getattr(self.linear.weight, "scale", 1) != 1:
            x = x + 7
        return x


CHANGES: dict[str, Any] = {
    "a global's item": lambda m: CONFIG.update(scale=3.0),
    "something deep": lambda m: CONFIG["deep"]["er"].update(still=[2.0]),
    "a slot": lambda m: setattr(m.slotted, "scale", 3.0),
    "a set": lambda m: m.names.add("b"),
    "a long list": lambda m: m.many.append(5.0),
    "a class's dict": lambda m: m.flags.update(on=False),
    "a module nobody registered": lambda m: m.hidden[0].train(),
    "a child of another class": lambda m: setattr(m, "act", nn.Tanh()),
    "tied weights": lambda m: setattr(m.other, "weight", m.linear.weight),
    "an attribute of a weight": lambda m: setattr(m.linear.weight, "scale", 3),
    "a default": lambda m: by_default.__defaults__[0].append(by_default.__defaults__[0].pop() + 1),
    "a keyword's default": lambda m: Decides.forward.__kwdefaults__["more"].update(plus=9.0),
    "a hook": lambda m: m.linear.register_forward_hook(lambda module, args, output: output * 2),
    "a forward": lambda m: setattr(m, "forward", lambda x: x * 3),
    "a class": lambda m: setattr(m, "__class__", type("Other", (Decides,), {"forward": lambda self, x: x * 5})),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_whatever_is_changed_a_graph_does_what_the_module_does_or_refuses(what: str, used: bool) -> None:
    before = copy.deepcopy((CONFIG, Decides.flags, by_default.__defaults__, Decides.forward.__kwdefaults__))
    model, x = Decides(), torch.randn(3, 4)
    made = fx_debug(model, x).root.fx
    try:
        if used:
            assert torch.equal(made(x), model(x))
        CHANGES[what](model)
        with pytest.raises(fxdebug.UsageError):
            assert torch.equal(made(x), model(x))  # where it does not refuse
            raise fxdebug.UsageError("it is right")
    finally:
        CONFIG.clear()
        CONFIG.update(before[0])
        Decides.flags, by_default.__defaults__, Decides.forward.__kwdefaults__ = before[1:]


@pytest.mark.parametrize("ask", [
    lambda x: getattr(x, "scale", 1.0), lambda x: x.storage_offset() + 1.0, lambda x: 2.0 if x._base is None else 3.0,
    lambda x: 2.0 if x._is_view() else 3.0, lambda x: 2.0 if isinstance(x, nn.Buffer) else 3.0,
    lambda x: 2.0 if x.is_inference() else 3.0, lambda x: 2.0 if x.grad is None else 3.0,
])  # fmt: skip
def test_what_a_body_asks_of_an_input_besides_its_sizes(ask: Any) -> None:
    class Asks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * ask(x)

    with torch.inference_mode():
        inference = torch.randn(3, 4)
    tagged, part, buffer = torch.randn(3, 4), torch.randn(20)[4:16].view(3, 4), nn.Buffer(torch.randn(3, 4))
    tagged.scale = 5.0
    graded = torch.randn(3, 4, requires_grad=True)
    graded.sum().backward()
    model, first = Asks(), torch.randn(3, 4)
    root = fx_debug(model, first).root
    for other in (first, tagged, part, buffer, inference, graded):
        try:
            found = root.fx(other)
        except fxdebug.UsageError:
            continue
        assert torch.equal(found, model(other))


@pytest.mark.parametrize("change", [
    lambda m: setattr(m, "scale", None), lambda m: m.table.clear(), lambda m: delattr(m, "scale"),
])  # fmt: skip
def test_where_the_module_raises_its_graph_does_not_compute_something(change: Any) -> None:
    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.table = 2.0, {"k": 3.0}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale * self.table["k"]

    model, x = Scales(), torch.ones(2)
    made = fx_debug(model, x).root.fx
    change(model)
    with pytest.raises(fxdebug.UsageError, match="it cannot be checked for these inputs"):
        made(x)


class Arranged(nn.Module):
    """Python decides by how its input lies in memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.is_contiguous() else x * 3 if x.stride(0) else x * 4


def activation() -> torch.Tensor:
    return torch.randn(3, 8, requires_grad=True) * 2


def lazy() -> torch.Tensor:
    return torch.complex(torch.randn(3, 8), torch.randn(3, 8)).conj()


LYING = {
    "an activation": activation,
    "its slice": lambda: activation()[:, :4],
    "its chunk": lambda: activation().chunk(2, -1)[1],
    "one row of it, several times": lambda: activation()[:1].expand(3, -1),
    "negated": lambda: lazy().imag,
    "conjugated": lazy,
    "conjugated, every other row": lambda: torch.cat([lazy(), lazy()])[::2],
    "the imaginary part of an activation": lambda: torch.view_as_complex(activation().view(3, 4, 2)).conj().imag,
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", LYING)
def test_a_graph_is_not_run_on_what_lies_otherwise_in_memory_where_that_decides(name: str, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        for model in (Arranged(), Layer()):
            x = torch.randn(3, 3 if isinstance(model, Layer) else 8)
            made = fx_debug(model, x).root.fx
            other = LYING[name]()
            if isinstance(model, Layer):
                if other.is_complex():
                    continue
                other = other[:, :3]
            try:
                found = made(other)
            except fxdebug.UsageError:
                assert isinstance(model, Arranged) and not other.is_contiguous()  # the other asks for nothing
                continue
            assert torch.equal(found, model(other))


class ReadsMemory(nn.Module):
    """C code reads, on one of two branches, numbers that fake tensors do not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 3:
            return x * 2
        return torch.tensor([x[0, 0], x[1, 1]]) if x.shape[0] == 4 else x.clone().apply_(lambda number: number * 3)


@pytest.mark.parametrize("rows", [4, 5])
def test_to_check_other_inputs_ends_no_process(rows: int) -> None:
    made = fx_debug(ReadsMemory(), torch.randn(3, 4)).root.fx
    for x in (torch.randn(rows, 4), torch.complex(torch.randn(rows, 4), torch.randn(rows, 4)).conj().imag):
        with pytest.raises(fxdebug.UsageError):
            made(x)


def test_a_tensor_made_of_plain_numbers_is_checked_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.tensor([1.0, 2.0, 3.0])

    made = fx_debug(Scales(), torch.randn(2, 3)).root.fx
    monkeypatch.setattr("fxdebug.capture.runnable_graphs.check_inputs.TensorCopies", None)  # what would run on copies
    x = torch.randn(5, 3)
    assert torch.equal(made(x), Scales()(x))

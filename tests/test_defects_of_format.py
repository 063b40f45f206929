"""What the reference's JSON cannot say is in the trace: one test per defect of the format, named after it.

Each test saves a run, loads it and reads the fact from there. The drop-in's files stay text-equal to the
reference's all the same, which ``assert_text_equal`` checks wherever the reference can run the model.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import json
import math
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from trees import Does, assert_text_equal, calls, files, linear, nodes, ones, saved, theirs, tree

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from fxdebug.data.values import Group
from fxdebug.prune import folded


def emitting(value: Any) -> Callable[[], tuple[nn.Module, dict[str, Any]]]:
    """Makes a model in which the leaf ``emit`` returns a thing, or what a function makes of the input."""

    def emit(self: Any, x: torch.Tensor) -> Any:
        return value(x) if isinstance(value, types.FunctionType) else value

    return lambda: (Does(lambda self, x: self.emit(x), emit=Does(emit)), {"x": ones(2)})


def emitted(value: Any, folder: Path, **options: Any) -> tuple[fxdebug.Trace, Any]:
    """The loaded trace of such a model, and what ``emit`` returned according to it; the text is the reference's."""
    make = emitting(value)
    assert_text_equal(make)
    model, inputs = make()
    trace = saved(model, inputs, folder, **options)
    return trace, trace.find("emit")[0].outputs.item


# Structure ---------------------------------------------------------------------------------------


def test_dict_keys_collide_in_json(tmp_path: Path) -> None:
    """Every key keeps its type: 1 and '1', None and 'null', True and 'true', 1.5 and '1.5' are different ones."""
    value = {1: "int", "1": "str", None: 2, "null": 3, True is False: 4, "false": 5, 1.5: torch.ones(1), "1.5": 7}
    _, group = emitted(value, tmp_path)
    assert group.keys == tuple(value) and [type(key) for key in group.keys] == [type(key) for key in value]
    assert group[1] == "int" and group["1"] == "str" and group[1.5].shape == (1,) and group["1.5"] == 7
    assert json.loads(next(tmp_path.glob("*SUMMARY*")).read_text())["children"][0]["outputs"]["1"] == "'str'"


def test_parent_outputs_dropped(tmp_path: Path) -> None:
    """What a module with children returns is recorded: sums after them, states beside them, at the root too."""

    def block(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + self.inner(x), x * 2

    def make() -> tuple[nn.Module, dict[str, Any]]:
        inner = Does(lambda self, x: x * 10)
        return Does(lambda self, x: {"sum": sum(self.block(x))}, block=Does(block, inner=inner)), {"x": ones()}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path, values="tensors")
    block_outputs = trace.find("block")[0].outputs
    assert [trace.tensor(value)[0, 0].item() for value in block_outputs] == [11.0, 2.0]
    assert trace.tensor(trace.root.outputs["sum"])[0, 0].item() == 13.0
    assert "outputs" not in tree(tmp_path)["children"][0]


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


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any = None


class Slotted:
    __slots__ = ("inside",)

    def __init__(self, inside: Any) -> None:
        self.inside = inside


class Opaque:
    """An object like a key–value cache: tensors in lists of objects in an attribute."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.layers = [Slotted({"keys": tensor}) for tensor in tensors]


def test_object_outputs_become_repr(tmp_path: Path) -> None:
    """Tensors inside dataclasses, sets, queues, views and any object with attributes are values like all others."""
    tensor = torch.full((1,), 3.0)
    things = {
        "dataclass": Pair(tensor, Pair([1], (tensor,))),
        "set": {tensor},
        "deque": collections.deque([tensor], maxlen=2),
        "view": {"a": tensor}.values(),
        "proxy": types.MappingProxyType({"a": tensor}),
        "namespace": types.SimpleNamespace(a=tensor),
        "slots": Slotted(tensor),
        "cache": Opaque(tensor, tensor),
    }
    _, group = emitted(things, tmp_path, values="tensors")
    trace = fxdebug.load(tmp_path)
    assert [item.type for item in group.items] == [type(thing).__name__ for thing in things.values()]
    for name, thing in zip(things, group.items):
        found = fxdebug.data.values.Outputs(thing)
        assert len(found) >= 1 and all(trace.tensor(value).item() == 3.0 for value in found), name
        assert thing.kind == "object" and thing.text is not None
    assert group["dataclass"]["right"]["left"] == Group("sequence", "list", (1,))
    assert fxdebug.data.values.Outputs(group["cache"]).slots == ("layers[0].inside.keys", "layers[1].inside.keys")


Point = collections.namedtuple("Point", ["x", "y"])


def test_container_types_lost(tmp_path: Path) -> None:
    """A tuple, a list, a named tuple and torch's result tuples keep their types and the names of their fields."""

    def made(x: torch.Tensor) -> list[Any]:
        ordered = collections.OrderedDict(a=x)
        return [(x,), [x], Point(x, 2), x.topk(2), x.shape, ordered, collections.defaultdict(list, b=1)]

    _, group = emitted(made, tmp_path)
    kinds = [(item.kind, item.type, item.keys) for item in group.items]
    assert kinds == [
        ("sequence", "tuple", None),
        ("sequence", "list", None),
        ("sequence", "Point", ("x", "y")),
        ("sequence", "topk", ("values", "indices")),
        ("sequence", "Size", None),
        ("mapping", "OrderedDict", ("a",)),
        ("mapping", "defaultdict", ("b",)),
    ]
    assert group[2]["x"].shape == (2, 4) and group[3]["indices"].dtype == "int64"


class Level(enum.IntEnum):
    LOW = 1


def test_plain_values_become_text(tmp_path: Path) -> None:
    """Numbers, None, booleans, strings and bytes are themselves; what is not plain says its type."""
    plain = [2.0, "2.0", None, "None", True, "True", 1, 10**40, -0.0, math.inf, 1 + 2j, b"\x00\xff", "\ud800 é", ""]
    odd = [math.nan, Level.LOW, np.float32(0.5), torch.float16, slice(1, 2), range(3)]
    _, group = emitted(plain + odd, tmp_path)
    assert list(group.items[: len(plain)]) == plain
    assert [type(item) for item in group.items[: len(plain)]] == [type(item) for item in plain]
    assert math.copysign(1, group[8]) == -1
    assert math.isnan(group[len(plain)])
    assert [(thing.type, thing.text) for thing in group.items[len(plain) + 1 :]] == [
        ("Level", "<Level.LOW: 1>"),
        ("float32", "np.float32(0.5)"),
        ("dtype", "torch.float16"),
        ("slice", "slice(1, 2, None)"),
        ("range", "range(0, 3)"),
    ]


def test_summary_strips_user_keys(tmp_path: Path) -> None:
    """A key of the model's own called 'value' is there, with what stood under it."""
    value = {"value": torch.ones(1), "shape": {"value": 5}, "mean": "mine"}
    _, group = emitted(value, tmp_path)
    assert group.keys == ("value", "shape", "mean") and group["value"].shape == (1,)
    assert group["shape"]["value"] == 5
    assert list(tree(tmp_path, "SUMMARY")["children"][0]["outputs"]) == ["shape", "mean"]


# Tensors -----------------------------------------------------------------------------------------


def test_repr_truncates_values(tmp_path: Path) -> None:
    """Every element, to the last bit, however many there are; their statistics are over all of them."""
    value = torch.linspace(-1, 1, 3001, dtype=torch.float64) / 3
    trace, kept = emitted(value, tmp_path, values="tensors")
    assert torch.equal(trace.tensor(kept), value)
    assert kept.stats.count == 3001 and kept.stats.max == 1 / 3
    model, inputs = emitting(value)()
    trace = saved(model, inputs, tmp_path / "repr", values="repr")
    assert "..." in "".join(tree(tmp_path / "repr")["children"][0]["outputs"]["value"])
    assert trace.find("emit")[0].outputs[0].stats == kept.stats


def test_shared_storage_not_recorded(tmp_path: Path) -> None:
    """One tensor is one value wherever it appears; views say whose memory they are and where in it; copies do not."""

    def made(x: torch.Tensor) -> list[torch.Tensor]:
        return [x, x, x.view(8), x[1], x.t(), x.detach(), x.clone()]

    trace, group = emitted(made, tmp_path, values="tensors")
    x, same, flat, row, turned, detached, copy = group.items
    assert same is x and trace.root.inputs[0] is x
    assert [v.storage for v in (flat, row, turned, detached)] == [x.storage] * 4 != [copy.storage] * 4
    assert (row.offset, row.stride, turned.stride) == (4, (1,), (1, 4))
    assert len({v.number for v in group.items}) == 6
    assert x.digest == detached.digest == copy.digest and x.saved == copy.saved  # equal data is written once
    model = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    trace = saved(model, -ones(), tmp_path / "in place", values="tensors")
    before, after = trace.find("0")[0].outputs[0], trace.find("1")[0].outputs[0]
    assert before is not after and before.storage == after.storage  # written to in between: two values, one memory
    assert (trace.tensor(before).sum().item(), trace.tensor(after).sum().item()) == (-4.0, 0.0)


def test_expanded_tensor_materialised(tmp_path: Path) -> None:
    """An expanded tensor is saved as the numbers it has, and comes back expanded."""
    value = torch.arange(4.0).expand(1000, 250, 4)
    model, inputs = emitting(value)()
    trace = saved(model, inputs, tmp_path, values="tensors")
    kept = trace.find("emit")[0].outputs[0]
    assert (kept.shape, kept.stride) == ((1000, 250, 4), (0, 0, 1))
    assert (kept.stats.count, kept.stats.mean, kept.stats.zeros) == (1_000_000, 1.5, 250_000)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.safetensors")) < 2000
    again = trace.tensor(kept)
    assert torch.equal(again, value) and again.stride() == value.stride()
    assert_text_equal(emitting(torch.arange(4.0).expand(10, 4)))


ALL_DTYPES = [
    torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip


def test_float64_without_statistics(tmp_path: Path) -> None:
    """Tensors of every dtype have statistics, and complex ones a complex mean."""
    for dtype in ALL_DTYPES:
        value = torch.tensor([0, 1, 1, 0]).to(dtype)
        if dtype is not torch.complex128:  # of which the reference cannot write a file
            assert_text_equal(emitting(value))
        trace = saved(*emitting(value)(), tmp_path / str(dtype), values="tensors")
        kept = trace.find("emit")[0].outputs[0]
        stats = kept.stats
        assert (stats.count, stats.mean, stats.zeros, stats.absmax) == (4, 0.5, 2, 1), dtype
        assert stats.std == pytest.approx(math.sqrt(1 / 3))
        assert (stats.min, stats.max) == ((None, None) if dtype.is_complex else (0, 1))
        assert str(dtype) == f"torch.{kept.dtype}" and trace.tensor(kept).dtype == dtype


def test_statistics_are_repr_strings(tmp_path: Path) -> None:
    """Statistics are numbers, as exact as the tensor's are."""
    value = torch.tensor([1.0, 1.00001, 1.00002, 1.00007])
    _, kept = emitted(value, tmp_path)
    exact = value.double()
    assert kept.stats.mean == pytest.approx(exact.mean().item(), rel=1e-9)
    assert kept.stats.std == pytest.approx(exact.std().item(), rel=1e-6)
    assert (kept.stats.min, kept.stats.max) == (1.0, exact.max().item())
    assert all(isinstance(number, float) for number in (kept.stats.mean, kept.stats.std, kept.stats.min))
    assert tree(tmp_path, "SUMMARY")["children"][0]["outputs"]["std"].startswith("tensor(")


class Tagged(torch.Tensor):
    """A subclass of the user's."""


def test_device_and_layout_not_recorded(tmp_path: Path) -> None:
    """Shape, dtype, device, layout, strides, offset, class, storage and requires_grad are fields of their own types."""
    leaf = torch.ones(3, 4, requires_grad=True)
    value = [leaf, leaf.detach().t()[1:], torch.ones(2).as_subclass(Tagged), torch.empty(2, device="meta")]
    model, inputs = emitting(value)()
    trace = saved(model, inputs, tmp_path)
    looks = [(v.shape, v.dtype, v.device, v.layout, v.type) for v in trace.find("emit")[0].outputs]
    assert looks == [
        ((3, 4), "float32", "cpu", "strided", "Tensor"),
        ((3, 3), "float32", "cpu", "strided", "Tensor"),
        ((2,), "float32", "cpu", "strided", "Tagged"),
        ((2,), "float32", "meta", "strided", "Tensor"),
    ]
    first, second, _, _ = trace.find("emit")[0].outputs
    assert (first.requires_grad, first.stride, first.offset) == (True, (4, 1), 0)
    assert (second.requires_grad, second.stride, second.offset, second.storage) == (False, (1, 4), 1, first.storage)
    sparse, inputs = emitting(torch.eye(2).to_sparse())()
    assert saved(sparse, inputs, tmp_path / "sparse").find("emit")[0].outputs[0].layout == "sparse_coo"
    assert_text_equal(emitting([leaf.detach(), leaf.detach().t()[1:]]))


def test_integer_dtype_range_missing(tmp_path: Path) -> None:
    """The range of token ids and masks is known exactly, in 64 bits too."""

    def made(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"ids": torch.tensor([[101, 2**62 + 1, 0]]), "mask": torch.tensor([True, False, True])}

    _, group = emitted(made, tmp_path)
    ids, mask = group["ids"].stats, group["mask"].stats
    assert (ids.min, ids.max, ids.zeros, type(ids.max)) == (0, 2**62 + 1, 1, int)
    assert (mask.min, mask.max, mask.zeros, mask.mean) == (0, 1, 1, pytest.approx(2 / 3))
    assert set(tree(tmp_path, "SUMMARY")["children"][0]["outputs"]["ids"]) == {"shape", "dtype"}


def test_nan_hides_extremes(tmp_path: Path) -> None:
    """NaN and infinities are counted, and the statistics are over what is finite."""
    value = torch.tensor([math.nan, 1.0, -math.inf, 0.0, math.inf, math.inf, 5.0])
    _, kept = emitted(value, tmp_path / "mixed")
    stats = kept.stats
    assert (stats.count, stats.nan, stats.posinf, stats.neginf, stats.finite) == (7, 1, 2, 1, 3)
    assert (stats.mean, stats.min, stats.max, stats.absmax, stats.zeros) == (2.0, 0.0, 5.0, 5.0, 1)
    assert tree(tmp_path / "mixed", "SUMMARY")["children"][0]["outputs"]["max"] == "tensor(nan)"
    _, kept = emitted(torch.full((3,), math.nan), tmp_path / "only")
    assert kept.stats == fxdebug.Stats(3, None, None, None, None, None, nan=3)


def test_one_element_std_is_nan(tmp_path: Path) -> None:
    """The std of a single element is 0, and measuring it warns about nothing."""
    for shape in ((), (1,), (1, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model, inputs = emitting(torch.full(shape, 2.5))()
            for values in ("stats", "repr", "tensors"):
                trace = saved(model, inputs, tmp_path / f"{len(shape)}{values}", values=values)
                stats = trace.find("emit")[0].outputs[0].stats
                assert (stats.count, stats.mean, stats.std, stats.min, stats.max) == (1, 2.5, 0.0, 2.5, 2.5)
            with drop_in(model, tmp_path / "drop_in"):
                model(**inputs)
        assert tree(tmp_path / "drop_in")["children"][0]["outputs"]["std"] == "tensor(nan)"
        assert_text_equal(emitting(torch.full(shape, 2.5)))


def test_dtensor_files(tmp_path: Path) -> None:
    """Of a DTensor the global shape, the mesh and the placement are recorded, besides its local part."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        value = DTensor.from_local(ones(3), mesh, [Shard(0), Replicate()], run_check=False)
        make = emitting(value)
        assert_text_equal(make)
        model, inputs = make()
        trace = fx_debug(model, inputs, save=tmp_path, values="tensors")
    finally:
        torch.distributed.destroy_process_group()
    loaded = fxdebug.load(tmp_path, rank=0)
    assert loaded == trace
    (kept,) = loaded.find("emit")[0].outputs
    assert (kept.type, kept.shape) == ("DTensor", (3, 4))
    assert kept.sharding == fxdebug.data.values.Sharding((6, 4), (4, 1), (2, 2), ("dp", "tp"), ("S(0)", "R"))
    assert torch.equal(loaded.tensor(kept), ones(3))


# Modules -----------------------------------------------------------------------------------------


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


# Pruning -----------------------------------------------------------------------------------------


def layers(count: int, *, odd: int | None = None) -> nn.Module:
    """A stack of blocks; ``odd`` is one that is not like the others."""
    blocks = [nn.Sequential(linear(), nn.ReLU()) for _ in range(count)]
    if odd is not None:
        blocks[odd] = nn.Sequential(linear(), nn.Tanh())
    return nn.Sequential(*blocks)


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
    assert [line for line in _rows(folded(trace)) if line.startswith("  ") and line[2] != " "] == [
        "  0", "  1", "  2", "  3", "  4",
    ]  # fmt: skip
    same = saved(layers(5), ones(), tmp_path / "same")
    assert _rows(folded(same)) == ["Sequential", "  0 … 4 ×5", "    0", "    1"]


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
    drawn = [line.strip() for line in _rows(folded(trace)) if line.startswith("  ") and line[2] != " "]
    assert drawn == ["first.0 … first.2 ×3", "second.0 … second.2 ×3", "second.3"]


def test_pruning_misses_leaf_layers(tmp_path: Path) -> None:
    """A stack of layers without submodules is one row in what is drawn."""

    def make() -> tuple[nn.Module, dict[str, Any]]:
        return nn.Sequential(*[linear() for _ in range(100)]), {"input": ones()}

    assert_text_equal(make)
    trace = saved(*make(), tmp_path, prune=True)
    assert len(tree(tmp_path, "SUMMARY")["children"]) == 100 == len(trace.calls) - 1
    assert _rows(folded(trace)) == ["Sequential", "  0 … 99 ×100"]
    assert "0 … 99 ×100" in str(trace)


# Contract ----------------------------------------------------------------------------------------


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


def test_default_path_is_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``fx_debug`` writes nothing unless it is told where; the drop-in writes where the reference does."""
    monkeypatch.chdir(tmp_path)
    for values in ("stats", "repr", "tensors"):
        trace = fx_debug(layers(2), ones(), values=values)
        assert files(tmp_path) == [] and trace.folder is None
    assert torch.equal(trace.tensor(trace.root.inputs[0]), ones())  # kept, but not here
    names = []
    for context in (drop_in, theirs):
        with context(layers(2), None, use_repr=False) as model:
            model(ones())
        names.append({name for name in files(tmp_path) if name.endswith(".json")})
        for path in tmp_path.iterdir():
            path.unlink()
    assert names[0] == names[1] == {"Sequential_debug_tree_FULL_TENSORS.json", "Sequential_debug_tree_SUMMARY.json"}

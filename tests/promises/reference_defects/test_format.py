"""What the reference's JSON cannot say is in the trace: one test per defect of the format, named after it.

Each test saves a run, loads it and reads the fact from there. The drop-in's files stay text-equal to the
reference's all the same, which ``assert_text_equal`` checks wherever the reference can run the model.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import math
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from fxdebug.data.values import Group
from support.emitted import emitted, emitting, layers
from support.trees import Does, assert_text_equal, files, ones, saved, theirs, tree

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

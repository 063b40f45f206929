"""What transformers' debugger does wrong, and neither ``fx_debug`` nor the drop-in does: one test per defect.

Each test is named after its defect and says what is right instead; where that is cheap it also shows
that the reference has it. Sections: files, the tree, what is left behind, odd values, failures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from support.defects import BOTH, FILES, adds, odd, outlines
from support.trees import Does, calls, files, linear, named, nodes, ones, returns, saved, tensors, theirs, tree

# Files -------------------------------------------------------------------------------------------


def test_repeated_call_overwrites_tensors(tmp_path: Path) -> None:
    """A module called several times: each call's tensors are in files of their own."""
    model = Does(lambda self, x: self.add(self.add(self.add(x))), add=adds(1))
    expected = [ones() + number for number in (1, 2, 3)]
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(ones())
    children = tree(tmp_path / "ours")["children"]
    assert [named(child["outputs"])[0] for child in children] == [
        "Does.add_outputs.safetensors",
        "Does.add_outputs-2.safetensors",
        "Does.add_outputs-3.safetensors",
    ]
    assert all(map(torch.equal, tensors(tmp_path / "ours", [child["outputs"] for child in children]), expected))
    trace = saved(model, ones(), tmp_path / "trace", values="tensors")
    assert all(map(torch.equal, [trace.tensor(call.outputs[0]) for call in trace.find("add")], expected))
    with theirs(model, tmp_path / "theirs", use_repr=False):
        model(ones())
    assert len({child["outputs"]["value"] for child in tree(tmp_path / "theirs")["children"]}) == 1


@pytest.mark.parametrize("use_repr", [True, False])
def test_second_forward_overwrites_the_trace(tmp_path: Path, use_repr: bool) -> None:
    """Every forward in the context is kept, the last under the standard names; ``fx_debug`` keeps them in one trace."""
    both = Does(lambda self, x: {"x": x * 2, "x.1": x * 3})  # the names of earlier files end in a number, too
    model = Does(lambda self, x: self.both(x), both=both)
    with drop_in(model, tmp_path, use_repr=use_repr):
        for number in range(3):
            model(ones() * number)
    numbers = sorted(int(path.name.split(".")[-2]) for path in tmp_path.glob("*SUMMARY.*.json"))
    kept = [tree(tmp_path, number=number) for number in (*numbers, None)]
    outputs = [node["children"][0]["outputs"] for node in kept]
    assert [output["x.1"]["max"] for output in outputs] == ["tensor(0.)", "tensor(3.0000e+00)", "tensor(6.0000e+00)"]
    if not use_repr:
        for number, output in enumerate(outputs):
            assert all(map(torch.equal, tensors(tmp_path, output), [ones() * number * 2, ones() * number * 3]))
        assert sorted(named(kept)) == files(tmp_path, "*.safetensors")
    model.twice = lambda x: model(model(x)["x"])  # type: ignore[assignment]
    trace = fx_debug(model, ones(), method="twice")
    assert calls(trace) == ["Does", "  Does", "    both", "  Does", "    both"]


@pytest.mark.parametrize("use_repr", [True, False])
def test_two_models_of_one_class_collide(tmp_path: Path, use_repr: bool) -> None:
    """Models of one class traced to one folder, in any order and by either tool: none loses its files."""
    first, second = (Does(lambda self, x: self.add(x), add=adds(number)) for number in (1, 2))
    for model in (first, second, second, first):
        with drop_in(model, tmp_path / "ours", use_repr=use_repr):
            model(ones())
    trees = [json.loads(path.read_text()) for path in sorted((tmp_path / "ours").glob("*FULL_TENSORS*"))]
    maxima = [node["children"][0]["outputs"]["max"] for node in trees]
    assert sorted(maxima) == ["tensor(2.0000e+00)", "tensor(3.0000e+00)"]
    if not use_repr:
        for node, largest in zip(trees, maxima):
            (tensor,) = tensors(tmp_path / "ours", node["children"][0]["outputs"])
            assert torch.equal(tensor, ones() * float(largest[7:17]))
    for model in (first, second):
        fx_debug(model, ones(), save=tmp_path / "traces", values="tensors")
    with drop_in(first, tmp_path / "traces", use_repr=use_repr):
        first(ones())
    traces = [fxdebug.load(path) for path in sorted((tmp_path / "traces").glob("trace*.json"))]
    assert [trace.tensor(trace.find("add")[0].outputs[0])[0, 0].item() for trace in traces] == [2.0, 3.0]
    summaries = [json.loads(path.read_text()) for path in (tmp_path / "traces").glob("*SUMMARY*.json")]
    assert len(summaries) == 3
    with theirs(first, tmp_path / "theirs"), theirs(second, tmp_path / "theirs"):
        first(ones()), second(ones())
    assert len(files(tmp_path / "theirs")) == 2


def test_file_names_collide(tmp_path: Path) -> None:
    """Names that are one when joined with underscores, or by case, or cut short: a file for each tensor."""
    values = {"a": [torch.ones(1)], "a_0": torch.ones(2), "A": [torch.ones(3)], "a_0-2": torch.ones(4)}
    values |= {"n" * 400 + end: torch.ones(5 + i) for i, end in enumerate("ab")}
    model = Does(lambda self, x: self.emit(x), emit=returns(values), emit_outputs=returns(None))
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(ones())
    output = tree(tmp_path / "ours")["children"][0]["outputs"]
    assert [len(tensor) for tensor in tensors(tmp_path / "ours", output)] == [1, 2, 3, 4, 5, 6]
    assert len(set(named(output))) == 6
    trace = saved(model, ones(), tmp_path / "trace", values="tensors")
    assert [len(trace.tensor(value)) for value in trace.find("emit")[0].outputs] == [1, 2, 3, 4, 5, 6]


def test_pruned_tensors_still_written(tmp_path: Path) -> None:
    """The files are those that the tree names: layers that are pruned have none."""
    model = nn.Sequential(*[nn.Sequential(linear(), nn.ReLU()) for _ in range(5)])
    with drop_in(model, tmp_path / "ours", do_prune_layers=True, use_repr=False):
        model(ones())
    node = tree(tmp_path / "ours")
    assert nodes(node) == ["Sequential", "  0", "    0.0", "    0.1", "  4", "    4.0", "    4.1"]
    assert sorted(named(node)) == files(tmp_path / "ours", "*.safetensors")
    trace = saved(model, ones(), tmp_path / "trace", values="tensors", prune=True)
    assert nodes(tree(tmp_path / "trace")) == nodes(node)
    given = [value for call in trace.calls for value in (*call.inputs, *call.outputs)]
    assert all(trace.tensor(value).shape == value.shape for value in given)
    with theirs(model, tmp_path / "theirs", use_repr=False):
        model(ones())
    assert len(files(tmp_path / "theirs", "*.safetensors")) > len(named(tree(tmp_path / "theirs")))


def test_parent_output_files_orphaned(tmp_path: Path) -> None:
    """No file lies there that the tree does not name; the trace names the root's outputs, and has them."""
    model = Does(lambda self, x: (self.add(x) * 2, {"more": x * 3}), add=adds(1))
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(ones())
    assert sorted(named(tree(tmp_path / "ours"))) == files(tmp_path / "ours", "*.safetensors")
    trace = saved(model, ones(), tmp_path / "trace", values="tensors")
    assert [trace.tensor(value)[0, 0].item() for value in trace.root.outputs] == [4.0, 3.0]
    assert {value.saved.partition("#")[0] for value in trace.values if value.saved} == {
        *files(tmp_path / "trace", "*.safetensors")
    }
    with theirs(model, tmp_path / "theirs", use_repr=False):
        model(ones())
    assert len(files(tmp_path / "theirs", "*.safetensors")) > len(named(tree(tmp_path / "theirs")))


class Key:
    """A key of a kind that JSON does not know; all of them look the same."""


def test_tuple_dict_keys(tmp_path: Path) -> None:
    """Dict keys of any kind: their text stands in the tree, and two keys with one text are told apart."""
    keys = [(1, 2), "(1, 2)", frozenset({3}), b"bytes", Key(), Key(), torch.float32]
    value = {key: torch.full((1,), float(number)) for number, key in enumerate(keys)}
    trace, printed, on_disk = odd(value, tmp_path, BOTH)
    assert list(printed)[:4] == ["(1, 2)", "(1, 2)-2", "frozenset({3})", "b'bytes'"]
    assert len(printed) == 7
    assert [tensor.item() for tensor in tensors(tmp_path / "ours-False", on_disk)] == list(map(float, range(7)))
    group = trace.find("emit")[0].outputs.item
    assert [trace.tensor(item).item() for item in group.items] == list(map(float, range(7)))
    assert group.keys[1] == "(1, 2)" and group.keys[0].text == "(1, 2)" and group.keys[3] == b"bytes"


def test_slash_in_dict_key_files(tmp_path: Path) -> None:
    """A slash, ``..`` or a NUL in a key is no directory: all files lie in the folder itself."""
    keys = ["a/b", "/etc/passwd", "../up", "..", "a_b", "nul\0byte", "back\\slash", ""]
    value = {key: torch.full((1,), float(number)) for number, key in enumerate(keys)}
    trace, _, on_disk = odd(value, tmp_path / "in", FILES)
    assert list(on_disk) == keys
    assert [tensor.item() for tensor in tensors(tmp_path / "in" / "ours-False", on_disk)] == list(map(float, range(8)))
    assert [trace.tensor(item).item() for item in trace.find("emit")[0].outputs] == list(map(float, range(8)))
    assert files(tmp_path) == ["in"]


def test_long_path_files(tmp_path: Path) -> None:
    """Paths too long for a file name, from names, keys or nesting, are cut and told apart."""
    deep: Any = torch.ones(1)
    for _ in range(150):
        deep = [deep]
    trace, _, on_disk = odd({"k" * 300: torch.zeros(1), "k" * 301: deep}, tmp_path / "keys", FILES)
    assert [tensor.item() for tensor in tensors(tmp_path / "keys" / "ours-False", on_disk)] == [0.0, 1.0]
    assert [trace.tensor(value).item() for value in trace.find("emit")[0].outputs] == [0.0, 1.0]
    model = adds(1)
    for number in range(40):
        model = Does(lambda self, x: next(iter(self._modules.values()))(x), **{f"a_rather_long_name_{number}": model})
    with drop_in(model, tmp_path / "names", use_repr=False):
        model(ones())
    assert sorted(named(tree(tmp_path / "names"))) == files(tmp_path / "names", "*.safetensors")
    assert len(saved(model, ones(), tmp_path / "trace", values="tensors").calls) == 41


def test_self_reference(tmp_path: Path) -> None:
    """A container that holds itself, directly or through others and objects, ends where it comes round."""
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    trace, printed, _ = odd(loop, tmp_path / "list", BOTH)
    assert printed[1] == "<cycle: the list 1 up>"
    assert trace.find("emit")[0].outputs.item[1].text == "<cycle: the list 1 up>"
    around: dict[str, Any] = {"tensor": torch.ones(1)}
    around["holder"] = ({"back": around},)
    _, printed, _ = odd(around, tmp_path / "dict", BOTH)
    assert printed["holder"][0]["back"] == "<cycle: the dict 3 up>"
    thing = Key()
    thing.me, thing.tensor = thing, torch.ones(2)  # type: ignore[attr-defined]
    trace, _, _ = odd(thing, tmp_path / "object", ())
    assert [value.shape for value in trace.find("emit")[0].outputs] == [(2,)]


def test_child_named_forward(tmp_path: Path) -> None:
    """A submodule may be called ``forward``, or like any other attribute."""
    names = ("forward", "training", "_modules", "__class__", "self")
    model = Does(lambda self, x: [part(x) for part in self._modules.values()], **{name: linear() for name in names})
    for outline in outlines(model, tmp_path):
        assert outline == ["Does", *[f"  {name}" for name in names]]
    with pytest.raises(Exception), theirs(model, tmp_path / "theirs"):  # noqa: B017
        model(ones())


def test_long_class_name(tmp_path: Path) -> None:
    """A class name too long for a file, or none at all for one, gives names that fit."""
    for number, name in enumerate(("C" * 300, "É" * 200, "a/b", "..")):
        model = type(name, (Does,), {})(lambda self, x: self.a(x), a=linear())
        with drop_in(model, tmp_path / f"{number}"):
            model(ones())
            model(ones(2))
        node = tree(tmp_path / f"{number}")
        assert node["module_path"] == name and len(files(tmp_path / f"{number}", "*SUMMARY*")) == 2
        assert saved(model, ones(), tmp_path / f"{number}").model == name
    with pytest.raises(OSError), theirs(type("C" * 300, (Does,), {})(lambda self, x: x), tmp_path) as model:
        model(ones())

"""Standard trees read back: those of transformers' debugger and our own, whole, pruned, overwritten and damaged."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.apps.cli import main
from fxdebug.data.calls import Note
from fxdebug.data.values import Group, Stats, Thing, Value
from fxdebug.errors import LoadError
from fxdebug.features.debug_trees.parse_statistics import parse_stats
from fxdebug.features.debug_trees.read_tree import _from_text
from fxdebug.store.transformers import printed_statistics, tree_files, write_tree
from support import reference
from support.sweep import sampled
from zoo import zoo, zoo_sample

KINDS = ("call", "values", "tensors", "names")
PLAIN = sampled([name for name, _ in zoo_sample.entries(False) if name.split("/")[0] in KINDS], 3)
ARCHITECTURES = ("hf/bert/", "hf/whisper/", "hf/longt5/", "hf/diffllama/", "hf/owlvit/")


def entries(*beginnings: str) -> list[str]:
    return [name for name, _ in zoo_sample.entries(False) if name.startswith(beginnings)]


def build_of(name: str) -> reference.Build:
    return zoo_sample.quietly(dict(zoo.zoo())[name])


def unpacked(written: reference.Written, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in written.files.items():
        (folder / name).write_bytes(data)
    return folder


def text_of(trace: Trace, *, full: bool) -> str:
    """The standard tree of a trace, as its file has it."""
    entry = tree_files.tensor_entry(trace, tree_files.tensor_content(trace, {}) if full else None)
    tree = write_tree.debug_tree(trace, entry, prune=False)
    text = io.StringIO()
    (tree_files.write_full_tree if full else tree_files.write_summary_tree)(tree, text)
    return text.getvalue()


class Twice(nn.Module):
    """Calls one module twice, hands a result on, and gets masks with infinities and integers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout()) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        hidden = self.layer(self.layer(x))
        for block in self.blocks:
            hidden = block(hidden)
        return {"hidden": hidden}


def of_transformers(model: nn.Module, folder: Path, *inputs: Any, use_repr: bool = False, prune: bool = True) -> Path:
    written = reference.of_reference(
        lambda: (model.eval(), dict(zip(("x", "mask"), inputs))), prune=prune, use_repr=use_repr
    )
    assert written.error is None
    return unpacked(written, folder)


# The same again ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN + entries(*ARCHITECTURES[:1]))
def test_a_tree_that_was_read_is_written_letter_for_letter(name, tmp_path):
    written = reference.of_drop_in(build_of(name), prune=False, use_repr=True)
    folder = unpacked(written, tmp_path / "run")
    for path in sorted(folder.glob("*.json")):
        text = path.read_text()
        if name != "values/colliding-keys-dict-output":  # two keys that are one in JSON: the second has a number
            assert text_of(fxdebug.load(path), full="FULL_TENSORS" in path.name) == text, path.name


@pytest.mark.parametrize("name", entries(*ARCHITECTURES))
def test_a_tree_tells_of_the_calls_and_values_of_the_run(name, tmp_path):
    model, inputs = build_of(name)()
    run = fx_debug(model, inputs, save=tmp_path, values="repr", graph=False)
    for path in sorted(tmp_path.glob("*_debug_tree_*.json")):
        tree = fxdebug.load(path)
        assert [shown(call) for call in tree.calls] == [shown(call) for call in run.calls]
        assert {same_digits(*pair) for pair in pairs(tree, run)} <= {True}


def shown(call: fxdebug.Call) -> tuple[Any, ...]:
    outputs = None if call.outputs is None or call.children else [value.label for value in call.outputs]
    inputs = [(slot, value.label) for slot, value in call.inputs.named() if "cache" not in slot and "past" not in slot]
    return call.path, call.number, call.parent_index, call.depth, call.finished, call.has_submodules, inputs, outputs


def pairs(tree: Trace, run: Trace) -> list[tuple[Value, Value]]:
    return [
        (one, other)
        for a, b in zip(tree.calls, run.calls)
        for one, other in [*zip(a.inputs, b.inputs), *zip(a.outputs or (), b.outputs or ())]
    ]


def same_digits(read: Value, measured: Value) -> bool:
    if read.stats is None:
        return measured.dtype not in printed_statistics.DTYPES_WITH_STATISTICS or measured.stats.min <= -1e4
    close = [
        a is b or abs(a - b) <= 1e-4 * abs(b) + 1e-6 * measured.stats.absmax
        for a, b in zip(numbers(read.stats), numbers(measured.stats))
    ]
    return all(close)


def numbers(stats: Stats) -> tuple[Any, ...]:
    return stats.mean, stats.std, stats.min, stats.max, stats.absmax


@pytest.mark.parametrize("use_repr", [True, False])
@pytest.mark.parametrize("name", entries("hf/bert/"))
def test_what_transformers_wrote_is_the_run(name, use_repr, tmp_path):
    folder = unpacked(reference.of_reference(build_of(name), prune=False, use_repr=use_repr), tmp_path / "theirs")
    tree = fxdebug.load(folder)
    model, inputs = build_of(name)()
    with torch.no_grad():
        run = fx_debug(model, inputs, values="tensors", graph=False)
    assert [(c.path, c.number, c.parent_index) for c in tree.calls] == [
        (c.path, c.number, c.parent_index) for c in run.calls
    ]
    assert tree.settings["values"] == ("repr" if use_repr else "tensors")
    if not use_repr:
        read = [(one, other) for one, other in pairs(tree, run) if one.saved]
        assert len(read) > 100
        assert [one for one, other in read if not torch.equal(tree.tensor(one), run.tensor(other))] == []


@pytest.mark.parametrize("use_repr", [True, False])
def test_an_output_that_is_the_next_calls_input_is_one_value(use_repr, tmp_path):
    tree = fxdebug.load(of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4), use_repr=use_repr, prune=False))
    first, second = tree.find("layer")
    assert first.outputs[0] is second.inputs[0] and first.inputs[0] is tree.root.inputs[0]
    assert first.outputs[0] is not first.inputs[0]
    chain = [call for call in tree.calls if call.path.startswith("blocks") and not call.children]
    assert [a.outputs[0] is b.inputs[0] for a, b in pairwise(chain)] == [True] * 7
    dropout = chain[1]
    assert dropout.outputs[0] is dropout.inputs[0], "in evaluation it hands on what it was given"
    assert len(tree.values) == 7, "x, two of the layer, four of linear ones"


def test_equal_statistics_are_not_one_value_where_the_data_tells_them_apart(tmp_path):
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Identity(), nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x).flip(0))

    for use_repr in (True, False):
        tree = fxdebug.load(of_transformers(Turned(), tmp_path / str(use_repr), torch.randn(3, 3), use_repr=use_repr))
        one, two = tree.find("one")[0], tree.find("two")[0]
        assert one.outputs[0] is one.inputs[0] is tree.root.inputs[0]
        assert two.inputs[0] is not one.outputs[0] and two.inputs[0].stats == one.outputs[0].stats


def test_reading_needs_no_torch(tmp_path):
    folder = of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4))
    code = "import sys, fxdebug; print(len(fxdebug.load(sys.argv[1]).calls), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "9 False\n"


def test_a_trace_from_a_tree_can_be_shown_saved_and_asked(tmp_path, capsys):
    folder = of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4))
    assert main.main(["show", str(folder)]) == 0
    assert "blocks: 1 to 2 not in the file" in " ".join(capsys.readouterr().out.split())
    tree = fxdebug.load(folder)
    tree.save(tmp_path / "again")
    again = fxdebug.load(tmp_path / "again")
    assert again.calls == tree.calls or [c.id for c in again.calls] == [c.id for c in tree.calls]
    value = tree.find("layer")[1].outputs[0]
    assert torch.equal(again.tensor(again.values[value.number]), tree.tensor(value))
    assert [call.id for call in tree.find(where="std > 0")] != []
    assert len(tree.graph) > len(tree.calls)


# What the debugger gets wrong, or leaves out ------------------------------------------------------


def noted(trace: Trace) -> str:
    return "\n".join(note.what for note in trace.notes)


def test_middle_layers_that_were_pruned_are_told(tmp_path):
    pruned = fxdebug.load(of_transformers(Twice(), tmp_path / "a", torch.randn(2, 4), prune=True))
    whole = fxdebug.load(of_transformers(Twice(), tmp_path / "b", torch.randn(2, 4), prune=False))
    (note,) = [note for note in pruned.notes if "pruned" in note.what]
    assert note == Note("blocks: 1 to 2 not in the file: pruned, as the debugger does unless told otherwise", "", 0)
    assert "pruned" not in noted(whole)
    two = Twice()
    two.blocks = two.blocks[:2]
    assert "pruned" not in noted(fxdebug.load(of_transformers(two, tmp_path / "c", torch.randn(2, 4))))


def test_of_calls_that_share_a_file_only_the_last_has_its_data(tmp_path):
    x = torch.randn(2, 4)
    tree = fxdebug.load(of_transformers(Twice(), tmp_path / "t", x))
    model, (first, second) = Twice().eval(), tree.find("layer")
    once, twice = model.layer(x), model.layer(model.layer(x))
    files = [value.saved for value in (*first.inputs, *first.outputs, *second.outputs)]
    assert files == [
        "Twice_inputs_kwargs_x.safetensors#data", "Twice.layer_inputs_args_0.safetensors#data",
        "Twice.layer_outputs.safetensors#data",
    ]  # fmt: skip
    assert torch.equal(tree.tensor(second.inputs[0]), once) and torch.equal(tree.tensor(second.outputs[0]), twice)
    assert "2 files stand for several tensors each, of which the debugger kept the last" in noted(tree)


def test_data_that_does_not_fit_its_statistics_is_refused(tmp_path):
    class Negative(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(torch._neg_view(x))

    tree = fxdebug.load(of_transformers(Negative(), tmp_path / "t", torch.arange(1.0, 5.0)))
    with pytest.raises(LoadError, match="wrong sign"):
        tree.tensor(tree.find("inner")[0].inputs[0])
    assert tree.tensor(tree.root.inputs[0]).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_masks_and_integers_have_statistics_where_all_elements_are_printed(tmp_path):
    mask = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])
    tree = fxdebug.load(of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4), mask, use_repr=True))
    run = fx_debug(Twice().eval(), {"x": torch.randn(2, 4), "mask": mask})
    assert tree.root.inputs["mask"].stats == run.root.inputs["mask"].stats
    short = fxdebug.load(tmp_path / "t" / "Twice_debug_tree_SUMMARY.json")
    assert short.root.inputs["mask"].stats is None
    assert "1 tensors hold NaN or infinities that the file does not count" in noted(short)


@pytest.mark.parametrize(
    ("shape", "dtype", "words", "lines", "expected"),
    [
        ((2,), "int64", None, ["tensor([0, 4])"], Stats(2, 2.0, 8**0.5, 0, 4, 4, zeros=1)),
        ((2,), "bool", None, ["tensor([ True, False])"], Stats(2, 0.5, 0.5**0.5, 0, 1, 1, zeros=1)),
        ((), "int64", None, ["tensor(3)"], Stats(1, 3.0, 0.0, 3, 3, 3)),
        ((), "float32", ("tensor(2.)", "tensor(nan)", "tensor(2.)", "tensor(2.)"), None, Stats(1, 2, 0.0, 2, 2, 2)),
        ((0,), "float32", ("tensor(nan)",) * 4, ["tensor([])"], Stats(0, None, None, None, None, None)),
        ((3,), "float32", ("tensor(nan)",) * 4, None, Stats(3, None, None, None, None, None, 1)),
        ((2,), "float32", ("tensor(nan)",) * 4, ["tensor([nan, 1.])"], Stats(2, 1.0, 0.0, 1.0, 1.0, 1.0, 1)),
        ((9,), "float32", ("tensor(..., size=())",) * 4, ["tensor(..., device='meta')"], None),
        ((2,), "int64", None, ["tensor([0, ..., 4])"], None),
        ((2,), "complex64", None, ["tensor([1.+2.j, 0.+0.j])"], None),
        ((2,), "int64", None, ["Odd([0, 4])"], None),
    ],
)
def test_statistics_are_read_from_print(shape, dtype, words, lines, expected):
    assert parse_stats(shape, dtype, words, lines) == expected


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("None", None), ("True", True), ("2.0", 2.0), ("'2.0'", "2.0"), ("-inf", -torch.inf), ("(1+2j)", 1 + 2j),
        ("b'x'", b"x"), ("{1, 2}", Thing("object", "{1, 2}")),
        ("<a.b.C object at 0xX>", Thing("C", "<a.b.C object at 0xX>")), ("1e3", Thing("1e3", "1e3")),
    ],
)  # fmt: skip
def test_plain_values_are_read_where_the_text_can_be_no_other(text, item):
    read = _from_text(text)
    assert (type(read), read) == (type(item), item)


def test_keys_that_are_one_in_json_are_both_kept(tmp_path):
    class Keys(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {1: x, "1": x + 1}

    tree = fxdebug.load(of_transformers(Keys(), tmp_path / "t", torch.zeros(2), use_repr=True))
    item = tree.root.outputs.item
    assert isinstance(item, Group) and item.keys == ("1", "1-2") and item["1-2"].stats.min == 1.0
    assert "the key '1' stands twice" in noted(tree)


def test_files_that_are_missing_are_told(tmp_path):
    folder = of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4))
    (folder / "Twice.blocks.0.0_outputs.safetensors").unlink()
    tree = fxdebug.load(folder)
    assert "1 files of tensors are missing: Twice.blocks.0.0_outputs.safetensors" in noted(tree)


def test_a_model_that_raised_and_one_that_calls_itself(tmp_path):
    class Fails(Twice):
        def forward(self, x: torch.Tensor) -> Any:
            return self.blocks[0](x[:, :3])

    with pytest.raises(RuntimeError):
        fx_debug(Fails(), torch.randn(2, 4), save=tmp_path / "run")
    (tmp_path / "run" / "trace.json").unlink()
    tree = fxdebug.load(tmp_path / "run")
    assert [(call.path, call.error.type, call.error.here) for call in tree.calls] == [
        ("", "RuntimeError", False), ("blocks.0", "RuntimeError", False), ("blocks.0.0", "RuntimeError", True),
    ]  # fmt: skip
    inner = {"module_path": "M (top-level)", "inputs": {"args": []}}
    (tmp_path / "M_debug_tree_SUMMARY.json").write_text(json.dumps({"module_path": "M", "children": [inner]}))
    assert [call.id for call in fxdebug.load(tmp_path / "M_debug_tree_SUMMARY.json").calls] == ["#0", "#1"]


# Which file, and damage ---------------------------------------------------------------------------


def test_trees_of_two_models_in_one_folder_have_to_be_named(tmp_path):
    of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4), use_repr=True)
    (tmp_path / "t" / "Other_debug_tree_SUMMARY.json").write_text('{"module_path": "Other"}')
    with pytest.raises(LoadError, match=r"2 models: load one of Other_debug_tree_SUMMARY\.json, Twice_debug_tree_FULL"):
        fxdebug.load(tmp_path / "t")
    assert fxdebug.load(tmp_path / "t" / "Other_debug_tree_SUMMARY.json").model == "Other"


def test_a_tree_under_another_name_is_known_by_how_it_begins(tmp_path):
    folder = of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4), use_repr=True)
    moved = (folder / "Twice_debug_tree_SUMMARY.json").rename(tmp_path / "golden.json")
    assert fxdebug.load(moved).model == "Twice"


TENSOR = '{"shape": "torch.Size([2])", "dtype": "torch.int64"}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"module_path": "M", "inputs": {"args": [', "cut short or damaged"),
        ("[]", 'does not begin with "module_path"'),
        ('{"module_path": 3}', 'does not begin with "module_path"'),
        ('{"module_path": "M", "children": {}}', "M.children is an object of 0, not a list"),
        ('{"module_path": "M", "children": [3]}', "a call inside M is 3, not an object"),
        ('{"module_path": "M", "inputs": [1]}', "M.inputs is a list of 1, not an object"),
        (f'{{"module_path": "M", "outputs": {TENSOR.replace("[2]", "two")}}}', "is not the shape of a tensor"),
        ("\udcff", "it is not text"),
    ],
)
def test_a_damaged_tree_is_an_error_that_names_the_file(text, says, tmp_path):
    path = tmp_path / "M_debug_tree_SUMMARY.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(LoadError) as error:
        fxdebug.load(path)
    assert str(path) in str(error.value) and says in str(error.value)


def test_a_tree_refers_to_no_file_outside_its_folder(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"")
    folder = tmp_path / "run"
    folder.mkdir()
    tensor = TENSOR[:-1] + ', "value": "./../x.safetensors"}'
    (folder / "M_debug_tree_FULL_TENSORS.json").write_text(f'{{"module_path": "M", "outputs": {tensor}}}')
    assert [value.saved for value in fxdebug.load(folder).values] == [None]


def test_a_deep_tree_is_read(tmp_path):
    deep = "[" * 5000 + "]" * 5000
    (tmp_path / "M_debug_tree_SUMMARY.json").write_text(f'{{"module_path": "M", "outputs": {deep}}}')
    item, depth = fxdebug.load(tmp_path).root.outputs.item, 0
    while item.items:
        item, depth = item.items[0], depth + 1
    assert depth == 4999


# Compared with a run ------------------------------------------------------------------------------


@pytest.mark.parametrize("use_repr", [True, False])
@pytest.mark.parametrize("prune", [True, False])
def test_a_run_is_equal_to_its_tree_as_far_as_print_goes_and_a_change_is_not(use_repr, prune, tmp_path):
    (name,) = entries("hf/bert/")
    folder = unpacked(reference.of_reference(build_of(name), prune=prune, use_repr=use_repr), tmp_path / "theirs")
    model, inputs = build_of(name)()
    with torch.no_grad():
        run = fx_debug(model, inputs)
        for path in sorted(folder.glob("*_debug_tree_*.json")):
            for comparison in (fxdebug.compare(path, run), fxdebug.compare(run, path)):
                assert (comparison.equal, len(comparison.findings)) == (True, 0)
        layer = model.bert.encoder.layer[-1].output.dense
        layer.weight.mul_(3)
        changed = fx_debug(model, inputs)
    for path in sorted(folder.glob("*_debug_tree_*.json")):
        first = fxdebug.compare(path, changed).first
        assert (
            first is not None and first.path == f"bert.encoder.layer.{len(model.bert.encoder.layer) - 1}.output.dense"
        )


def test_files_that_the_system_does_not_let_be_compared_are_told(tmp_path, monkeypatch):
    folder = of_transformers(Twice(), tmp_path / "t", torch.randn(2, 4))
    assert "could not be compared" not in noted(fxdebug.load(folder))

    def no_handles(path: Path, *args: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(Path, "open", no_handles)
    tree = fxdebug.load(folder)
    assert "tensors could not be compared with earlier ones, and count as values of their own: " in noted(tree)
    assert "Too many open files: close some, or raise the limit with ulimit -n" in noted(tree)

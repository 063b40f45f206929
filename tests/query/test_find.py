"""Asking a run: calls, operations, what leads where, patterns; the same on a loaded trace and in the shell."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from fxdebug import fx_debug, load
from fxdebug.apps.cli import main
from fxdebug.errors import NotFound, UsageError
from fxdebug.query.find import find_calls
from fxdebug.query.run_of_call import run_of_call
from support import asked as asked_model
from support.asked import ids
from support.trees import Does, linear, ones


def line_of(text: str) -> str:
    """``file.py:12`` of the line of this file that contains the text first."""
    lines = Path(asked_model.__file__).read_text(encoding="utf-8").splitlines()
    return f"asked.py:{next(i for i, line in enumerate(lines, 1) if text in line)}"


# Finding calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"path": "layers.*.out"}, ["layers.0.out#0", "layers.1.out#0"]),
        ({"path": "head"}, ["head#0"]),
        ({"path": "spare"}, []),  # registered, never called: known, and empty
        ({"type": "Linear", "path": "layers.1.*"}, ["layers.1.qkv#0", "layers.1.out#0"]),
        ({"type": "Soft*"}, ["layers.0.softmax#0", "layers.1.softmax#0"]),
        ({"shape": "1,3,24"}, ["layers.0.qkv#0", "layers.1.qkv#0"]),
        ({"shape": (1, None, 10)}, ["#0", "head#0"]),
        ({"shape": "1,3"}, []),
        ({"dtype": "torch.float32", "type": "Embedding"}, ["embed#0"]),
        ({"dtype": "float16"}, []),  # a dtype there is, not in this run
        ({"where": "nan > 0"}, ["#0"]),
        ({"where": "max <= 1 and min >= 0"}, ["layers.0.softmax#0", "layers.1.softmax#0"]),
        ({"where": lambda call: call.number == 0 and len(call.children) == 3}, ["layers.0#0", "layers.1#0"]),
        ({"status": "verified", "path": "head"}, ["head#0"]),
        ({"status": "opaque"}, []),
        ({"source": line_of("self.out(self.softmax"), "path": "layers.0*"}, ["layers.0.softmax#0", "layers.0.out#0"]),
    ],
)  # fmt: skip
def test_every_condition_narrows_down_the_calls(asked, conditions, expected):
    assert ids(asked.find(**conditions)) == expected


def test_without_conditions_every_call_is_found_in_execution_order(asked):
    assert asked.find() == list(asked.calls)


def test_a_call_is_found_by_every_name_of_its_module():
    one = linear()
    trace = fx_debug(Does(lambda self, x: self.b(self.a(x)), a=one, b=one), ones())
    assert ids(trace.find("b")) == ids(trace.find("a")) == ["a#0", "a#1"]
    assert ids(trace.ops(path="b")) == ["a#0/linear", "a#1/linear"]
    assert trace["b#1"] == trace["a#1"] == trace.node("b#1").call
    with pytest.raises(NotFound, match="no call in this trace is named 'b#2'"):
        trace["b#2"]


def test_a_path_with_wildcards_in_it_is_found_by_itself():
    keys = ["a-b[0]*?", "日本 語", "[x]", "*"]
    layers = nn.ModuleDict({key: linear() for key in keys})
    trace = fx_debug(Does(lambda self, x: [layer(x) for layer in self.layers.values()], layers=layers), ones())
    for key in keys[:-1]:
        assert ids(trace.find(f"layers.{key}")) == [f"layers.{key}#0"] == [trace[f"layers.{key}"].id]
        assert [node.op for node in trace.ops(path=f"layers.{key}")] == ["linear"]
    assert len(trace.find("layers.*")) == 4
    with pytest.raises(UsageError, match="path=5: give a text"):
        trace.find(5)


def test_every_call_is_one_of_a_module_also_where_its_class_is_not_known(tmp_path):
    trace = fx_debug(Does(lambda self, x: self.a(x), a=linear()), ones(), save=tmp_path)
    file = tmp_path / "trace.json"
    file.write_text(file.read_text().replace('"Does"', '"OfAnotherProgram"'))
    assert len(load(tmp_path).find(type=nn.Module)) == len(trace.find(type=nn.Module)) == 2
    assert len(load(tmp_path).find(type=(nn.Linear, nn.Module))) == 2
    assert ids(load(tmp_path).find(type=nn.Linear)) == ["a#0"]


# Finding operations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"op": "softmax"}, ["layers.0.softmax#0/softmax", "layers.1.softmax#0/softmax"]),
        ({"op": "mat*", "path": "layers.1"}, ["layers.1#0/matmul", "layers.1#0/matmul_1"]),
        ({"type": "Attention", "shape": "1,3,3"}, [f"layers.{i}#0/{op}" for i in (0, 1) for op in ("matmul", "div")]),
        ({"path": "", "status": "verified"}, ["Model#0/add", "Model#0/add_1", "Model#0/log"]),
        ({"where": "nan > 0"}, ["Model#0/log"]),
        ({"where": lambda node: node.op == "log"}, ["Model#0/log"]),
        ({"source": line_of(".log()")}, ["head#0/linear", "Model#0/log"]),
        ({"dtype": "int*"}, []),
        ({"dtype": "int*", "kind": "placeholder"}, ["Model#0/tokens", "embed#0/input_1"]),
        ({"kind": "get_attr", "path": "head"}, ["head#0/weight", "head#0/bias"]),
        ({"kind": "call_module", "type": "Softmax"}, ["layers.0.softmax#0", "layers.1.softmax#0"]),
    ],
)
def test_every_condition_narrows_down_the_operations(asked, conditions, expected):
    assert ids(asked.ops(**conditions)) == expected


def test_operations_come_in_execution_order_and_the_first_and_last_are_list_items(asked):
    found = asked.ops()
    assert [node.position for node in found] == sorted(node.position for node in found)
    assert (found[0].id, found[-1].id) == ("embed#0/embedding", "Model#0/log")


def test_a_source_is_a_file_a_line_or_a_glob(asked):
    everything = ids(asked.ops(source="asked.py"))
    assert everything == ids(asked.ops(source=asked_model.__file__)) == ids(asked.ops(source="aske*"))
    assert "layers.0#0/matmul" in everything
    assert asked.ops(source="asked.py:1") == []
    with pytest.raises(NotFound, match=r"no source file 'sked\.py'"):  # the end of a name is another name
        asked.ops(source="sked.py:*")


def test_dtype_shape_and_statistics_must_hold_for_one_tensor():
    trace = fx_debug(Does(lambda self, x: (x.to(torch.float64), x - 5)), ones(2))
    assert ids(trace.find(dtype="float64", where="min < 0")) == []
    assert (
        ids(trace.find(dtype="float64", where="min > 0")) == ids(trace.find(dtype="float32", where="min < 0")) == ["#0"]
    )


# Mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda t: t.find("layers.0.sofmax"), "no module 'layers.0.sofmax' .* Did you mean 'layers.0.softmax'"),
        (lambda t: t.find(type="linear"), "no module type 'linear' .* Did you mean 'Linear'"),
        (lambda t: t.find(dtype="float23"), "no dtype 'float23'; this trace has float32, int64. Did you mean 'float"),
        (lambda t: t.find(source="models.py"), "no source file 'models.py' in this trace of 1: asked.py"),
        (lambda t: t.ops("sofmax"), "no operation 'sofmax' .* Did you mean 'softmax'"),
        (lambda t: t.ops("log", path="layer.0"), "no module 'layer.0' .* Did you mean 'layers.0'"),
        (lambda t: t.node("layers.0#0/matmul_2"), "nothing in this trace .* Did you mean 'layers.0#0/matmul_1'"),
        (lambda t: t.node("spare"), "the module 'spare' was never called in this run"),
        (lambda t: t.upstream("hed"), "nothing in this trace is called 'hed'. Did you mean 'head#0'"),
        (lambda t: t.pattern(["matmul", "sofmax"]), "no operation 'sofmax' .* Did you mean 'softmax'"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_an_error_that_offers_the_nearest(asked, question, message):
    with pytest.raises(NotFound, match=message):
        question(asked)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda t: t.find(status="good"), "status='good': use one of 'verified', 'recorded', 'opaque'"),
        (lambda t: t.ops(kind="call"), "kind='call': use one of 'placeholder', "),
        *[
            (lambda t, shape=shape: t.find(shape=shape), f"shape '{shape}': write sizes with commas and . for any")
            for shape in ("1,a", "3,x", "x", "2,,3")
        ],
        (lambda t: t.find(source="asked.py:x"), "source 'asked.py:x': after asked.py: write a line number"),
        (lambda t: t.find(where="absmaks > 1"), "there is no 'absmaks'; use count, .* Did you mean 'absmax'"),
        (lambda t: t.find(where="absmax >"), "is not an expression: invalid syntax"),
        (lambda t: t.find(where="__import__('os')"), "use comparisons of count, mean"),
        (lambda t: t.find(where="mean.real > 0"), "there is no 'mean.real'; use count, .* Did you mean 'mean'"),
        (lambda t: t.find(where="'a' < 'b'"), "use comparisons of count, mean"),
        (lambda t: t.find(where="\0"), "is not an expression"),
        (lambda t: t.find(where="-" * 100_000 + "1"), "nested too deeply"),
        (lambda t: t.pattern([]), "a pattern needs at least one operation"),
    ],
)
def test_a_question_that_cannot_be_meant_is_an_error_that_says_what_can(asked, question, message):
    with pytest.raises(UsageError, match=message):
        question(asked)


def test_a_run_without_graphs_says_so_instead_of_finding_nothing():
    trace = fx_debug(nn.Sequential(linear()), ones(), graph=False)
    for question in (lambda: trace.ops(), lambda: trace.find(status="verified"), lambda: trace.pattern(["linear"])):
        with pytest.raises(UsageError, match="it was made with graph=False"):
            question()
    assert ids(trace.find("0")) == ["0#0"] and ids(trace.upstream("0")) == ["Sequential#0/args[0]"]


def test_a_thing_of_another_run_is_not_taken_for_one_of_this(trace):
    other = fx_debug(nn.Sequential(linear(), linear(), linear()), ones())
    for thing in (other.calls[-1], other.node("2"), other.values[0]):
        with pytest.raises(NotFound, match="belongs to another trace"):
            trace.upstream(thing)


# In the shell ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["layers.*.out"], ["--type", "Soft*"], ["--shape", "1,*,24"], ["--where", "nan > 0"], ["--status", "verified"],
        ["layers.0*", "--dtype", "float32", "--where", "absmax < 1"], ["--source", "asked.py"],
    ],
)  # fmt: skip
def test_find_in_the_shell_answers_as_in_python(trace, capsys, arguments):
    options = {arguments[i].removeprefix("--"): arguments[i + 1] for i in range(len(arguments) % 2, len(arguments), 2)}
    path = arguments[0] if len(arguments) % 2 else None
    assert main.main(["find", str(trace.folder), *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = trace.find(path, **options)
    assert [line.split()[0] for line in lines] == ["id", *ids(expected), str(len(expected))]
    assert lines[-1] == f"{len(expected)} found"


def test_operations_in_the_shell_have_their_numbers_status_and_line(trace, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main.main(["find", str(trace.folder), "--ops", "log"]) == 0
    head, line, count = capsys.readouterr().out.splitlines()
    stats = trace.node("Model#0/log").stats
    assert head.split() == ["id", "operation", "out", "mean", "std", "min", "max", "not", "finite", "status", "source"]
    assert line.split() == [
        "Model#0/log", "log", "float32[1,", "3,", "10]",
        *(f"{number:.3g}" for number in (stats.mean, stats.std, stats.min, stats.max)),
        str(stats.nan), "NaN", "verified", line_of(".log()"),
    ]  # fmt: skip
    assert count == "1 found"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("absmax > 0.1", ["absmax"]),
        ("input.max > 0 and parameter.absmax > 0.1 or duration > 1e9", ["input.max", "parameter.absmax", "duration"]),
        ("zeros / count < 0.5 and not nan", ["zeros", "count", "nan"]),
    ],
)
def test_the_numbers_that_are_asked_for_are_shown_under_their_names(trace, capsys, line, names, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main.main(["find", str(trace.folder), "--where", line]) == 0
    head, *rows, _ = capsys.readouterr().out.splitlines()
    assert head.split()[3 : 3 + len(names)] == names
    found = trace.find(where=line)
    for row, call in zip(rows, found, strict=True):
        at = head.index(f" {names[0]} ") + 1 + len(names[0])
        if names[0] in ("absmax", "zeros"):
            assert float(row[:at].split()[-1]) == pytest.approx(getattr(call.outputs[0].stats, names[0]), rel=0.01)


def test_finding_nothing_is_exit_status_1_and_a_mistake_2(trace, capsys):
    assert main.main(["find", str(trace.folder), "--where", "absmax > 1e9"]) == 1
    assert capsys.readouterr().out == "0 found\n"
    assert main.main(["find", str(trace.folder), "--ops", "sofmax"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("fxdebug: no operation 'sofmax' in this trace")


def test_a_type_is_a_name_a_class_with_its_subclasses_or_several(asked):
    class Special(nn.Linear):
        pass

    assert ids(asked.find(type=nn.Linear)) == ids(asked.find(type="Linear"))
    assert ids(asked.find(type=(nn.Embedding, "Soft*"))) == ["embed#0", "layers.0.softmax#0", "layers.1.softmax#0"]
    assert len(asked.find(type=nn.Module)) == len(asked.calls)
    assert asked.find(type=Special) == asked.find(type=()) == []
    assert ids(fx_debug(nn.Sequential(Special(4, 4), nn.ReLU()), ones()).find(type=nn.Linear)) == ["0#0"]
    inside = ["embed#0/embedding", "layers.0.softmax#0/softmax", "layers.1.softmax#0/softmax"]
    assert ids(asked.ops(type=(nn.Softmax, nn.Embedding))) == inside
    for wrong in (3, nn.Linear(2, 2), [nn.Linear]):
        with pytest.raises(UsageError, match="give a class, a name such as 'Linear', or a tuple of these"):
            asked.find(type=wrong)
    with pytest.raises(NotFound, match="no module type 'Linaer'"):
        asked.find(type=(nn.Linear, "Linaer"))


# Classes -----------------------------------------------------------------------------------------


def class_named(name: str, *bases: type) -> type:
    """A class as a notebook has it whose cell ran again: the names of another, and an object of its own."""
    return type(name, bases, {"__module__": "__main__", "__qualname__": name})


class Holds:
    class Net(nn.Linear):
        pass


def class_cases() -> dict[str, tuple[nn.Module, type, list[str]]]:
    plain, other = linear(), class_named("Net", nn.Linear)
    outer = class_named("Net", nn.Sequential)
    made_anew = class_named("Net", nn.Linear)
    parametrized = nn.utils.parametrizations.weight_norm(linear())
    sharded = linear()
    sharded.__class__ = type("FSDPLinear", (nn.Linear,), {"__module__": "sharding.wrappers"})
    return {
        "a class elsewhere with the model's name": (outer(plain), nn.Linear, ["0#0"]),
        "asked for by that class": (outer(plain), other, []),
        "two of one name in a model": (outer(other(4, 4), plain), other, ["0#0"]),
        "two of one name and one base": (nn.Sequential(other(4, 4), made_anew(4, 4)), made_anew, ["1#0"]),
        "nested": (nn.Sequential(Holds.Net(4, 4), other(4, 4)), Holds.Net, ["0#0"]),
        "parametrized": (nn.Sequential(parametrized), nn.Linear, ["0#0"]),
        "copied": (copy.deepcopy(nn.Sequential(parametrized, other(4, 4))), nn.Linear, ["0#0", "1#0"]),
        "its class was made while it lives": (nn.Sequential(sharded, plain), nn.Linear, ["0#0", "1#0"]),
        "that class": (nn.Sequential(sharded, plain), type(sharded), ["0#0"]),
        "not in the model's list of children": (
            Does(lambda self, x: self.hidden[1](self.hidden[0](x)), hidden=[other(4, 4), plain]),
            other,
            ["hidden[0]#0"],
        ),
    }


# a file has names, and these classes have the same
OF_ONE_NAME = {
    "asked for by that class": ["#0"],
    "two of one name in a model": ["#0", "0#0"],
    "two of one name and one base": ["0#0", "1#0"],
}


@pytest.mark.parametrize("case", class_cases())
def test_a_class_is_an_object_in_a_live_run_and_a_full_name_in_a_loaded_one(case, tmp_path):
    model, kind, expected = class_cases()[case]
    trace = fx_debug(model, ones(), save=tmp_path)
    found = OF_ONE_NAME.get(case, expected)
    assert (ids(trace.find(type=kind)), ids(load(tmp_path).find(type=kind))) == (expected, found)
    assert load(tmp_path) == trace
    assert {each.call.id for each in load(tmp_path).ops("linear", type=kind)} == set(found) - {"#0"}
    file = tmp_path / "trace.json"  # as an older version wrote it: with bare names alone
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith('"classes"')))
    assert set(found) <= set(ids(load(tmp_path).find(type=kind)))


def test_a_call_as_a_run_of_its_own_knows_its_classes(asked):
    layer = asked.find("layers.1")[0]
    inner = run_of_call(layer)
    assert [call.path for call in find_calls(inner, type=nn.Linear)] == ["qkv", "out"]
    assert [each.paths for each in inner.classes if each.names[0].endswith(".Linear")] == [("qkv", "out")]


def test_modules_that_were_not_called_are_listed_without_containers_of_torch_alone():
    class ModuleList(nn.Module):
        pass

    class Layers(nn.ModuleList):
        pass

    model = Does(lambda self, x: self.a(x), a=linear(), b=nn.ModuleList(), c=ModuleList(), d=Layers())
    assert fx_debug(model, ones()).never_called == ("c", "d")

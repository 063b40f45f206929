"""Asking a run: calls, operations, what leads where, patterns; the same on a loaded trace and in the shell."""

from __future__ import annotations

import math
import re
from pathlib import Path

import networkx as nx
import pytest
import torch
from torch import nn
from support.trees import Does, linear, ones

import fxdebug
from fxdebug import NotFound, Trace, UsageError, fx_debug
from fxdebug.apps import cli
from fxdebug.predicate import FACTS, compiled


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.softmax = nn.Softmax(-1)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        return self.out(self.softmax(scores) @ v)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Attention(8) for _ in range(2))
        self.head = nn.Linear(8, 10)
        self.spare = nn.Dropout()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).log()  # NaN where it is negative


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    torch.manual_seed(0)
    return fx_debug(Model(), torch.tensor([[1, 2, 3]]), save=tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module", params=["as it ran", "loaded"])
def asked(request: pytest.FixtureRequest, trace: Trace) -> Trace:
    """The trace of the process that ran it, and the one that was loaded: they answer alike."""
    assert trace.folder is not None
    return trace if request.param == "as it ran" else fxdebug.load(trace.folder)


def ids(found: list) -> list[str]:
    return [one.id for one in found]


def line_of(text: str) -> str:
    """``file.py:12`` of the line of this file that contains the text first."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"test_queries.py:{next(i for i, line in enumerate(lines, 1) if text in line)}"


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
    everything = ids(asked.ops(source="test_queries.py"))
    assert everything == ids(asked.ops(source=__file__)) == ids(asked.ops(source="test_quer*"))
    assert "layers.0#0/matmul" in everything
    assert asked.ops(source="test_queries.py:1") == []
    with pytest.raises(NotFound, match=r"no source file 'queries\.py'"):  # the end of a name is another name
        asked.ops(source="queries.py:*")


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
        (lambda t: t.find(dtype="float23"), "no dtype 'float23'; here are float32, int64. Did you mean 'float32'"),
        (lambda t: t.find(source="models.py"), "no source file 'models.py' in this trace of 1: test_queries.py"),
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
            (lambda t, shape=shape: t.find(shape=shape), f"shape '{shape}': write sizes and . with commas")
            for shape in ("1,a", "3,x", "x", "2,,3")
        ],
        (lambda t: t.find(source="test_queries.py:x"), "source 'test_queries.py:x': after test_queries.py: stands"),
        (lambda t: t.find(where="absmaks > 1"), "no 'absmaks'; there is count, .* Did you mean 'absmax'"),
        (lambda t: t.find(where="absmax >"), "is not an expression: invalid syntax"),
        (lambda t: t.find(where="__import__('os')"), "use comparisons of count, mean"),
        (lambda t: t.find(where="mean.real > 0"), "use comparisons of count, mean"),
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
        with pytest.raises(NotFound, match="is not of this trace"):
            trace.upstream(thing)


# Lines about statistics --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("count == 6", True), ("numel == 6 and ndim == 2", True), ("nan", True), ("not nan", False), ("inf == 2", True),
        ("posinf == neginf == 1", True), ("zeros == 1", True), ("-3 < min < max", True), ("absmax > 2 ** 3", False),
        ("mean > 1e300 * 1e300", False), ("std / 0 > 1", False), ("finite < count", True), ("requires_grad", False),
        ("(nan + inf) / count >= 0.5", True), ("absmax > 9 ** 9 ** 9 ** 9", False),
    ],
)  # fmt: skip
def test_a_line_is_arithmetic_over_statistics(line, holds):
    trace = fx_debug(Does(lambda self, x: x * 1), torch.tensor([[math.nan, math.inf, -1], [-math.inf, 2, 0]]))
    assert compiled(line)(trace.root.outputs[0]) is holds


def test_a_fact_that_is_not_known_makes_its_comparison_false():
    trace = fx_debug(Does(lambda self, x: x * 1), torch.ones(2, device="meta"))
    value = trace.root.outputs[0]
    unknown = [name for name in FACTS if name not in ("numel", "ndim", "requires_grad")]
    assert [name for name in unknown if compiled(f"{name} > 0")(value) or compiled(f"{name} <= 0")(value)] == []
    assert compiled("numel == 2")(value)


# What leads where --------------------------------------------------------------------------------


def test_upstream_is_all_that_a_result_depends_on(asked):
    found = ids(asked.upstream("layers.0#0/matmul"))
    assert found == [
        "Model#0/tokens", "embed#0/input_1", "embed#0/weight", "embed#0/embedding", "embed#0/output", "embed#0",
        "layers.0#0/x", "layers.0.qkv#0/input_1", "layers.0.qkv#0/weight", "layers.0.qkv#0/bias",
        "layers.0.qkv#0/linear", "layers.0.qkv#0/output", "layers.0.qkv#0", "layers.0#0/chunk", "layers.0#0/getitem",
        "layers.0#0/getitem_1", "layers.0#0/transpose",
    ]  # fmt: skip
    assert ids(asked.upstream("layers.0#0/matmul", steps=1)) == ["layers.0#0/getitem", "layers.0#0/transpose"]
    assert asked.upstream("Model#0/tokens") == []


def test_downstream_is_all_that_depends_on_a_result(asked):
    assert ids(asked.downstream("head#0/linear")) == [
        "head#0/output",
        "head#0",
        "Model#0/log",
        "Model#0/output",
        "Model#0",
    ]
    everything = set(ids(asked.downstream("layers.1.qkv#0/bias")))
    assert "layers.1.softmax#0/softmax" in everything and not any(id.startswith("layers.0") for id in everything)


def test_nodes_calls_values_ids_and_paths_all_name_a_place(asked):
    call = asked.find("layers.1.softmax")[0]
    node = asked.node("layers.1.softmax#0")
    assert node is asked.node(call) is asked.node("layers.1.softmax") is asked.node(node)
    made = asked.node(call.outputs[0])  # the step that made the value
    assert made.id == "layers.1.softmax#0/softmax" and made.stats == call.outputs[0].stats
    assert asked.node(asked.root.inputs[0]).id == "Model#0/tokens"
    assert asked.node(asked.root).id == asked.node("#0").id == "Model#0"


def test_a_path_that_was_called_twice_is_no_place():
    trace = fx_debug(Does(lambda self, x: self.a(self.a(x)), a=linear()), ones())
    with pytest.raises(NotFound, match=re.escape("'a' was called 2 times: say a#0 … a#1")):
        trace.node("a")


def test_producers_and_consumers_are_the_neighbours(asked):
    assert ids(asked.producers("layers.0")) == ["embed#0"]
    assert ids(asked.consumers("layers.0")) == ["Model#0/add"]
    assert ids(asked.producers("Model#0/add")) == ["embed#0", "layers.0#0"]
    assert ids(asked.consumers("layers.0#0/chunk")) == [f"layers.0#0/getitem{n}" for n in ("", "_1", "_2")]


def test_between_is_every_node_on_a_way(asked):
    found = ids(asked.between("layers.1.softmax", "Model#0/log"))
    assert found == [
        "layers.1.softmax#0", "layers.1#0/matmul_1", "layers.1.out#0/input_1", "layers.1.out#0/linear",
        "layers.1.out#0/output", "layers.1.out#0", "layers.1#0/output", "layers.1#0", "Model#0/add_1", "head#0/input_1",
        "head#0/linear", "head#0/output", "head#0", "Model#0/log",
    ]  # fmt: skip
    assert asked.between("Model#0/log", "layers.1.softmax") == []
    assert ids(asked.between("head", "head")) == ["head#0"]


def test_paths_are_the_ways_the_shortest_first(asked):
    ways = asked.paths("Model#0/add", "Model#0/add_1")
    assert ids(ways[0]) == ["Model#0/add", "Model#0/add_1"]  # the residual
    assert [len(way) for way in ways] == sorted(len(way) for way in ways)
    assert len(ways) == 4  # and through q, k and v
    assert asked.paths("Model#0/add", "Model#0/add_1", limit=2) == ways[:2]
    assert asked.paths("Model#0/add_1", "Model#0/add") == []


def test_a_subgraph_has_the_chosen_nodes_and_the_edges_among_them(asked):
    part = asked.subgraph(["layers.0#0/div", asked.find("layers.0.softmax")[0], "layers.0.softmax#0/input_1"])
    assert isinstance(part, nx.MultiDiGraph)
    assert list(part) == ["layers.0#0/div", "layers.0.softmax#0/input_1", "layers.0.softmax#0"]
    assert list(part.edges(data="argument")) == [("layers.0#0/div", "layers.0.softmax#0/input_1", "args[0]")]
    assert part.nodes["layers.0#0/div"] == asked.graph.nodes["layers.0#0/div"]
    everything = asked.subgraph(node for node in asked.graph if node != "spare")
    assert list(everything.edges(data=True)) == list(asked.graph.edges(data=True))
    assert len(asked.subgraph([])) == 0


def test_a_pattern_is_found_through_scaling_and_across_modules(asked):
    found = asked.pattern(["matmul", "softmax", "matmul"])
    assert [ids(match) for match in found] == [
        [f"layers.{i}#0/matmul", f"layers.{i}.softmax#0/softmax", f"layers.{i}#0/matmul_1"] for i in (0, 1)
    ]
    assert asked.pattern(["matmul", "softmax"], within=0) == []  # the scaling lies between them
    assert len(asked.pattern(["mat*", "div", "soft*"], within=0)) == 2
    assert asked.pattern(["log", "matmul"]) == []


# In the shell ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["layers.*.out"], ["--type", "Soft*"], ["--shape", "1,*,24"], ["--where", "nan > 0"], ["--status", "verified"],
        ["layers.0*", "--dtype", "float32", "--where", "absmax < 1"], ["--source", "test_queries.py"],
    ],
)  # fmt: skip
def test_find_in_the_shell_answers_as_in_python(trace, capsys, arguments):
    options = {arguments[i].removeprefix("--"): arguments[i + 1] for i in range(len(arguments) % 2, len(arguments), 2)}
    path = arguments[0] if len(arguments) % 2 else None
    assert cli.main(["find", str(trace.folder), *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = trace.find(path, **options)
    assert [line.split()[0] for line in lines] == [*ids(expected), str(len(expected))]
    assert lines[-1] == f"{len(expected)} found"


def test_operations_in_the_shell_have_their_numbers_status_and_line(trace, capsys):
    assert cli.main(["find", str(trace.folder), "--ops", "log"]) == 0
    line, count = capsys.readouterr().out.splitlines()
    nan = trace.node("Model#0/log").stats.nan
    assert line.split() == [
        "Model#0/log", "log", "float32[1,", "3,", "10]", str(nan), "NaN", "verified", line_of(".log()"),
    ]  # fmt: skip
    assert count == "1 found"


def test_finding_nothing_is_exit_status_1_and_a_mistake_2(trace, capsys):
    assert cli.main(["find", str(trace.folder), "--where", "absmax > 1e9"]) == 1
    assert capsys.readouterr().out == "0 found\n"
    assert cli.main(["find", str(trace.folder), "--ops", "sofmax"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("fxdebug: no operation 'sofmax' in this trace")

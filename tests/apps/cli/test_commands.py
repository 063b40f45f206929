"""The command ``fxdebug``: what it prints, its exit status, and what it says when it cannot work."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import networkx
import pytest
import torch
from PIL import Image
from rich.cells import cell_len
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.apps.cli import main
from support.trees import Does, ones

MODEL = """
from __future__ import annotations

import dataclasses

import torch
from torch import nn


@dataclasses.dataclass
class Result:
    value: torch.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return Result(self.head(self.layers(x)))

    def encode(self, x):
        return self.layers(x)


def build():
    torch.manual_seed(0)
    return Net(), torch.ones(1, 4)


def broken():
    net, x = build()
    net.head = nn.Linear(3, 2)
    return net, x


def forgetful():
    return build()[0]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A saved run."""
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    fx_debug(nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)], nn.LogSoftmax(-1)), ones(), save=folder)
    return str(folder)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a model; what the command adds to the process is taken out again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "net", None)
    monkeypatch.delitem(sys.modules, "net")
    (tmp_path / "net.py").write_text(MODEL)
    return "net.py"


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fxdebug", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, encoding="utf-8",
    )  # fmt: skip


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, what was printed, and what was said about errors."""
    status = main.main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# Help --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", *(entry.function.__name__ for entry in main.commands())])
def test_every_command_has_help_that_fits_into_80_columns(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main([*name.split(), "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert max(map(len, text.splitlines())) <= 80
    for entry in main.commands():
        if not name:
            assert entry.function.__name__ in text
        elif entry.function.__name__ == name:
            assert all(flag in text for flags, _ in entry.arguments for flag in flags if flag.startswith("-"))


def test_help_and_looking_at_runs_load_no_torch(run):
    script = (
        "import sys; from fxdebug.apps.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = [name for name in ('torch', 'numpy', 'rich', 'networkx') if name in sys.modules]\n"
        f"main(['show', {run!r}]); main(['find', {run!r}, '--ops'])\n"
        "print(slow, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[] False", done.stderr


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"fxdebug {fxdebug.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["draw"], ["show"], ["show", "a", "--depht", "2"]])
def test_an_unknown_command_or_option_is_exit_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: fxdebug")


# show --------------------------------------------------------------------------------------------


def test_show_draws_the_tree_in_80_columns(run, capsys):
    status, out, err = told(capsys, "show", run)
    assert (status, err) == (0, "")
    assert out == f"{fxdebug.load(run)}\n"
    assert "0 … 4 ×5 Linear" in out
    assert max(map(len, out.splitlines())) <= 80


def test_show_shows_every_layer_fewer_levels_or_more_columns(run, capsys):
    assert [line.split()[1] for line in told(capsys, "show", run, "--all")[1].splitlines()[3:]] == list("012345")
    assert len(told(capsys, "show", run, "--depth", "0")[1].splitlines()) == 3
    assert " in " in told(capsys, "show", run, "--width", "120")[1].splitlines()[1]


def test_show_of_something_else_says_what_it_is_not(tmp_path, capsys):
    for path, message in (
        (tmp_path / "nowhere", f"{tmp_path / 'nowhere'} does not exist"),
        (tmp_path, f"{tmp_path} holds no trace.json: it is not a run saved by fxdebug"),
    ):
        assert told(capsys, "show", str(path)) == (2, "", f"fxdebug: {message}\n")


def test_what_is_shown_can_be_cut_off_by_the_reader(run):
    script = f"{sys.executable} -m fxdebug show {run} --all --width 200 | head -c 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("S", "")


def test_a_terminal_without_our_letters_gets_signs_that_it_has(run):
    done = command("show", run, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "+ 0 ... 4 x5 Linear" in done.stdout


# find: what it finds is in query/test_find.py -----------------------------------------------------


def test_find_leaves_columns_out_where_there_are_few(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    whole = told(capsys, "find", run, "--type", "LogSoftmax")[1].splitlines()[1].split()
    monkeypatch.setenv("COLUMNS", "50")
    few = told(capsys, "find", run, "--type", "LogSoftmax")[1].splitlines()[1].split()
    monkeypatch.delenv("COLUMNS")
    piped = told(capsys, "find", run, "--type", "LogSoftmax")[1].splitlines()[1].split()
    assert whole == piped and whole[-2:] == ["verified", next(word for word in whole if ".py:" in word)]
    assert few[:5] == whole[:5] and set(few) < set(whole) and not {"verified", whole[-1]} & set(few)


def test_wide_and_combining_names_keep_the_columns_of_find(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    names = ("层归一化", "e\u0301cole", "plain", "한국어")
    parts = {name: nn.Linear(4, 4) for name in names}
    fx_debug(Does(lambda self, x: [x := getattr(self, name)(x) for name in names][-1], **parts), ones(), save=tmp_path)
    head, *lines, _ = told(capsys, "find", str(tmp_path), "--type", "Linear")[1].splitlines()
    assert {cell_len(line[: line.index("Linear")]) for line in lines} == {cell_len(head[: head.index("type")])}
    assert {cell_len(line[: line.index("verified")]) for line in lines} == {cell_len(head[: head.index("status")])}


# one call ----------------------------------------------------------------------------------------


def test_show_of_a_path_is_one_call_with_code_inputs_outputs_and_weights(run, capsys):
    status, out, _ = told(capsys, "show", run, "4")
    assert status == 0
    first, *_ = out.splitlines()
    assert re.fullmatch(r"4#0  Linear · verified · [\d.e-]+ ms", first)
    assert [re.split(r"\s{2,}", line)[:2] for line in out.splitlines() if "float32" in line] == [
        ["args[0]", "float32[1, 4]"],
        ["result", "float32[1, 4]"],
        ["4.weight", "float32[4, 4]"],
        ["4.bias", "float32[4]"],
    ]
    assert "    linear = torch._C._nn.linear(input_1, weight, bias);" in out
    assert max(map(len, out.partition("def forward")[0].splitlines())) <= 80
    status, _, err = told(capsys, "show", run, "4#1")
    assert (status, err) == (2, "fxdebug: no call in this trace is named '4#1'. Did you mean '4#0' or '4' or '1'?\n")


def test_show_of_a_call_that_raised_or_is_opaque_says_so(tmp_path, capsys):
    def fail(self, x, limit=3):
        raise ValueError("too\x1b[31m much")

    with pytest.raises(ValueError):
        fx_debug(Does(lambda self, x: self.inner(x, limit=None), inner=Does(fail)), ones(), save=tmp_path)
    out = told(capsys, "show", str(tmp_path), "inner#0")[1]
    assert "raised ValueError: too\\x1b[31m much" in out and "\x1b" not in out
    assert re.search(r"^limit +None", out, re.MULTILINE)


# --json and --csv --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "schema", "columns"),
    [
        (["show"], "fxdebug.show/1", ["id", "kind", "path"]),
        (["show", "4"], "fxdebug.call/1", ["kind", "name", "dtype"]),
        (["find", "[0-3]"], "fxdebug.find/1", ["id", "kind", "path"]),
        (["find", "--ops"], "fxdebug.ops/1", ["id", "kind", "path"]),
        (["check"], "fxdebug.check/1", ["severity", "kind", "node"]),
        (["graph"], "fxdebug.graph/1", ["source", "target", "argument"]),
    ],
)
def test_every_command_that_prints_data_prints_json_and_csv(run, capsys, arguments, schema, columns):
    name, *rest = arguments
    data = json.loads(told(capsys, name, run, *rest, "--json")[1])
    assert (list(data)[:2], data["schema"]) == (["schema", "model"], schema)
    lines = list(csv.reader(told(capsys, name, run, *rest, "--csv")[1].splitlines()))
    assert lines[0][:3] == columns
    assert {len(line) for line in lines} == {len(lines[0])}
    rows = next((data[key] for key in ("found", "edges", "findings", "calls") if key in data), None)
    assert len(lines) - 1 == (4 if rows is None else len(rows))
    assert told(capsys, name, run, *rest, "--csv", "--json") == (
        2,
        "",
        "fxdebug: give either --json or --csv, not both\n",
    )


def test_the_forms_hold_what_the_trace_holds(run, capsys):
    trace = fxdebug.load(run)
    data = json.loads(told(capsys, "show", run, "--json")[1])
    assert [(call["id"], call["status"], call["duration"]) for call in data["calls"]] == [
        (call.id, call.status, call.duration) for call in trace.calls
    ]
    (last,) = [call for call in data["calls"] if call["path"] == "4"]
    assert last["outputs"][0]["mean"] == trace["4"].outputs[0].stats.mean and last["parent"] == "#0"
    data = json.loads(told(capsys, "find", run, "--where", "parameter.absmax > 0.1", "--json")[1])
    assert all(list(row["facts"]) == ["parameter.absmax"] for row in data["found"]) and data["found"]
    lines = told(capsys, "find", run, "--where", "parameter.absmax > 0.1", "--csv")[1].splitlines()
    assert lines[0].endswith(",zeros,where.parameter.absmax")
    graph = networkx.node_link_graph(json.loads(told(capsys, "graph", run, "--json")[1]), edges="edges")
    assert list(graph.nodes(data=True)) == list(trace.graph.nodes(data=True))
    assert sorted(graph.edges(data="argument")) == sorted(trace.graph.edges(data="argument"))
    assert told(capsys, "find", run, "--where", "nan > 0", "--json")[0] == 1


# Options, colours, factories ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [entry.function.__name__ for entry in main.commands()])
def test_an_unknown_option_shows_the_usage_of_its_command(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main([name, *{"compare": ["a", "b"], "native": ["build"]}.get(name, ["a"]), "--depht", "3"])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith(f"usage: fxdebug {name} [-h]") and "--depht" in err.partition("unrecognized arguments: ")[2]
    assert ("Did you mean '--depth'" in err) is (name in ("show", "graph", "run"))


@pytest.mark.parametrize(
    ("environment", "colored"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),  # an empty one is none: no-color.org
    ],
)
def test_colours_are_forced_and_forbidden_by_the_environment(run, capsys, monkeypatch, environment, colored):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for arguments in (["show", run], ["show", run, "4"], ["compare", run, run], ["flops", run], ["summary", run]):
        assert ("\x1b[" in told(capsys, *arguments)[1]) is colored


@pytest.mark.parametrize(
    ("environment", "colored"),
    [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)],
)
def test_on_a_terminal_every_command_has_colours_unless_it_can_show_none(run, monkeypatch, environment, colored):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    trace = fxdebug.load(run)
    for text in (trace.text(), fxdebug.flops(trace).text(), fxdebug.compare(trace, trace).text()):
        assert ("\x1b[" in text) is colored


def test_of_several_processes_the_first_one_prints(tmp_path, capsys, monkeypatch):
    """As under ``torchrun``; of a job that the model's file has set up, the hint names a rank."""
    (tmp_path / "model.py").write_text(MODEL_OF_A_JOB)
    for environment, printed in (({"RANK": "0"}, True), ({"RANK": "1"}, False)):
        for name, value in ({"TORCHELASTIC_RUN_ID": "x"} | environment).items():
            monkeypatch.setenv(name, value)
        status, out, _ = told(capsys, "run", f"{tmp_path}/model.py:alone")
        assert (status, bool(out)) == (0, printed)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    try:
        status, out, _ = told(capsys, "run", f"{tmp_path}/model.py:job", "--save", f"{tmp_path}/run")
    finally:
        torch.distributed.destroy_process_group()
    *_, hint = out.splitlines()
    assert hint.endswith(f"look again with: fxdebug show {tmp_path}/run --rank 0")
    assert told(capsys, *hint.partition("fxdebug ")[2].split())[0] == 0


MODEL_OF_A_JOB = """
import tempfile, torch
from torch import nn

def alone():
    return nn.ReLU(), torch.ones(2)

def job():
    torch.distributed.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
    return nn.ReLU(), torch.ones(2)
"""


def test_the_rank_of_a_distributed_run_is_told_as_the_option(tmp_path, capsys):
    for rank in range(2):
        fx_debug(nn.ReLU(), ones(), save=tmp_path / f"rank-{rank}")
    told_so = (2, "", f"fxdebug: {tmp_path} is a run of 2 ranks: give --rank 0 … --rank 1\n")
    for command in ("show", "find", "check", "graph"):
        assert told(capsys, command, str(tmp_path)) == told_so
    assert told(capsys, "compare", str(tmp_path), str(tmp_path)) == told_so
    for rank in ("2", "-1"):
        no_rank = (2, "", f"fxdebug: {tmp_path} has no rank {rank}: it is a run of the ranks 0, 1\n")
        assert told(capsys, "show", str(tmp_path), "--rank", rank) == no_rank
    assert told(capsys, "show", str(tmp_path), "--rank", "1")[0] == 0
    with pytest.raises(fxdebug.LoadError, match="load one with rank=0 … rank=1"):
        fxdebug.load(tmp_path)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def build(size, *, depth, bias=1): ...", "build takes arguments (size, depth) and fxdebug has none to give"),
        ("def build():\n    raise ValueError('no data')", "build() raised ValueError (odd.py:2): no data"),
        ("import torch\ndef build():\n    return torch.nn.Linear(3)", "build() raised TypeError (odd.py:3): "),
        ("def build():\n    assert False", "build() raised AssertionError (odd.py:2)"),
        ("import no_such_module_at_all", "odd.py raised ModuleNotFoundError (odd.py:1): No module named"),
        ("def build(:", "odd.py cannot be read: invalid syntax (odd.py:1)"),
    ],
)  # fmt: skip
def test_a_factory_that_cannot_be_called_ends_in_a_message(tmp_path, capsys, monkeypatch, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text(code)
    status, out, err = told(capsys, "run", "odd.py:build")
    assert (status, out) == (2, "") and err.startswith(f"fxdebug: {message}") and "Traceback" not in err


# compare: what it finds is in test_compare.py ------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Three saved runs: the reference, the same again, and one with two wrong epsilons."""
    folder = tmp_path_factory.mktemp("runs")
    ramp = torch.arange(8.0).view(2, 4)
    for name, eps in (("a", 1e-5), ("same", 1e-5), ("b", 0.5)):
        model = nn.Sequential(nn.LayerNorm(4, eps=eps), nn.ReLU(), nn.LayerNorm(4, eps=eps))
        fx_debug(model, ramp, save=folder / name)
    return str(folder / "a"), str(folder / "same"), str(folder / "b")


def test_compare_prints_the_screen_and_exits_with_1_where_runs_differ(runs, capsys):
    a, same, b = runs
    assert told(capsys, "compare", a, b) == (1, f"{fxdebug.compare(a, b)}\n", "")
    assert told(capsys, "compare", a, same) == (0, f"{fxdebug.compare(a, same)}\n", "")
    assert max(map(len, told(capsys, "compare", a, b, "--width", "50")[1].splitlines())) <= 50


def test_compare_takes_a_tolerance_what_to_ignore_and_a_mapping(runs, tmp_path, capsys):
    a, _, b = runs
    assert told(capsys, "compare", a, b, "--tolerance", "0.9")[0] == 0
    assert told(capsys, "compare", a, b, "--ignore", "0", "--ignore", "2")[0] == 0
    assert "what was returned differs by" in told(capsys, "compare", a, b, "--ignore", "0", "--ignore", "2")[1]
    assert told(capsys, "compare", a, b, "--ignore", "2")[1].startswith("different: first at 0, ")
    assert told(capsys, "compare", a, b, "--map", "0=0", "--map", "2=2")[0] == 1
    (tmp_path / "names.json").write_text('{"0": "0"}')
    assert told(capsys, "compare", a, b, "--map", str(tmp_path / "names.json"))[0] == 1


def test_compare_also_writes_a_file(runs, tmp_path, capsys):
    a, _, b = runs
    status, out, _ = told(capsys, "compare", a, b, "--all", "-o", str(tmp_path / "d.json"))
    assert (status, out.splitlines()[-1]) == (1, f"wrote {tmp_path / 'd.json'}")
    assert json.loads((tmp_path / "d.json").read_text())["equal"] is False


def test_compare_that_cannot_be_made_exits_with_2(runs, tmp_path, capsys):
    a, _, b = runs
    nowhere = tmp_path / "nowhere"
    for arguments, message in (
        ((a, str(nowhere)), f"{nowhere} does not exist"),
        ((a, b, "--map", "x", "--map", "0=0"), "--map x: give one file, or any number of A=B such as"),
        ((a, b, "--map", str(nowhere)), f"{nowhere} cannot be read: No such file"),
        ((a, b, "--map", "9=9"), "mapping '9': no module of a has such a path."),
        ((a, b, "-o", str(tmp_path / "x.docx")), "nothing exports to '.docx': use .svg, "),
    ):
        status, _, err = told(capsys, "compare", *arguments)
        assert status == 2 and err.startswith(f"fxdebug: {message}"), err
    for name in ("one", "other"):
        with torch.device("meta"):
            fx_debug(nn.Linear(4, 4), ones(), save=tmp_path / name)
    status, out, err = told(capsys, "compare", str(tmp_path / "one"), str(tmp_path / "other"))
    assert (status, err) == (2, "") and out.startswith(
        "could not compare: no call of one run has a counterpart with numbers"
    )


def test_compare_loads_torch_only_where_tensors_were_kept(runs):
    script = f"import sys; from fxdebug.apps.cli.main import main; main(['compare', {runs[0]!r}, {runs[2]!r}]); "
    script += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


# graph -------------------------------------------------------------------------------------------


def test_graph_draws_a_picture_by_its_suffix(run, tmp_path, capsys):
    assert told(capsys, "graph", run, "-o", str(tmp_path / "g.png"), "--rankdir", "LR", "--all", "--color", "std") == (
        0, f"wrote {tmp_path / 'g.png'}\n", "",
    )  # fmt: skip
    with Image.open(tmp_path / "g.png") as image:
        assert image.width > 2 * image.height


def test_graph_writes_svg_where_one_is_unless_told_otherwise(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert told(capsys, "graph", run)[:2] == (0, "wrote graph.svg\n")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_graph_passes_depth_and_everything_on(run, tmp_path, capsys):
    sizes = []
    for options in (["--depth", "0"], [], ["--all"], ["--everything"]):
        assert told(capsys, "graph", run, "-o", str(tmp_path / "g.dot"), *options)[0] == 0
        nodes = re.findall(r"^\t+n\d+ \[", (tmp_path / "g.dot").read_text(encoding="utf-8"), re.MULTILINE)
        sizes.append(len(nodes))
    assert sizes == [3, 4, 8, 6]
    assert told(capsys, "graph", run, "-o", str(tmp_path / "g.json"), "--depth", "1")[0] == 0
    assert len(json.loads((tmp_path / "g.json").read_text())["nodes"]) == 9


def test_graph_says_what_it_cannot_do(run, tmp_path, capsys):
    status, out, err = told(capsys, "graph", run, "-o", str(tmp_path / "g.bmp"))
    assert (status, out) == (2, "") and err.startswith("fxdebug: nothing exports to '.bmp': use .dot, .gv, .svg")
    assert told(capsys, "graph", run, "-o", str(tmp_path / "g.json"), "--color", "std")[2] == (
        "fxdebug: .json has no option 'color'; it has depth, ops\n"
    )
    assert list(tmp_path.iterdir()) == []


# run ---------------------------------------------------------------------------------------------


def test_run_traces_the_model_of_a_file_and_saves_it(model, tmp_path, capsys):
    status, out, err = told(capsys, "run", f"{model}:build", "--save", "runs/net", "--values", "tensors")
    assert (status, err) == (0, "")
    assert out.splitlines()[0].startswith("Net  8 calls · ")
    assert out.splitlines()[-1] == "saved to runs/net; look again with: fxdebug show runs/net"
    trace = fxdebug.load(tmp_path / "runs" / "net")
    assert trace.tensor(trace.root.outputs["value"]).shape == (1, 2)
    assert trace.find("head")[0].source == "net.py:22"
    assert not trace.settings["grad"]


def test_run_calls_another_method_with_gradients(model, capsys):
    status, out, _ = told(capsys, "run", f"{model}:build", "--method", "encode", "--grad", "--depth", "0")
    assert status == 0 and out.splitlines()[0].startswith("Net  encode · 7 calls")
    assert told(capsys, "run", f"{model}:build", "--method", "decode")[2] == "fxdebug: Net has no method 'decode'\n"


def test_run_of_a_model_that_raises_draws_what_ran_and_ends_with_its_exception(model):
    done = command("run", f"{model}:broken", "--save", "failed")
    assert done.returncode == 1
    assert "raised in head (net.py:22): RuntimeError: mat1 and mat2 shapes" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert "fxdebug: " not in done.stderr
    ours = [line for line in done.stderr.splitlines() if os.path.dirname(fxdebug.__file__) in line]
    assert all(line.endswith(("in <module>", "in main")) for line in ours), "our own frames stand before the model's"
    assert fxdebug.load("failed").error.type == "RuntimeError"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([], "no model: give FILE.py:function, or --hf with a folder or name"),
        (["net.py"], "'net.py' is not of the form FILE.py:function, such as model.py:build"),
        (["nat.py:build"], "there is no file nat.py"),
        (["net.py:bild"], "net.py defines no function 'bild'; it defines Result, Net, build, broken, forgetful"),
        (["net.py:forgetful"], "forgetful() must return (model, inputs), not Net"),
        (
            ["net.py:build", "--hf", "there"],
            "give either net.py:build or --hf there, not both: one model is run at a time",
        ),
        (
            ["net.py:build", "--text", "a"],
            "--text needs --hf: the inputs of a model in a file are what its function returns",
        ),
    ],
)
def test_run_says_what_it_needs(model, capsys, target, message):
    assert told(capsys, "run", *target) == (2, "", f"fxdebug: {message}\n")


# run --hf ----------------------------------------------------------------------------------------


def checkpoint(folder: Path, model: str, config: object, **special: str) -> str:
    """A small model with random weights and a tokenizer, in the folder transformers would load it from."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    getattr(transformers, model)(config).save_pretrained(folder)
    words = ["[UNK]", "[PAD]", "a", "man", "plays", "music", "."]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **special).save_pretrained(
        folder
    )
    return str(folder)


def test_run_traces_a_transformers_model_on_text(tmp_path, capsys):
    from transformers import BertConfig

    config = BertConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16, num_labels=2
    )
    folder = checkpoint(tmp_path / "bert", "BertForSequenceClassification", config, pad_token="[PAD]")
    capsys.readouterr()
    texts = ["--text", "a man plays music .", "--text", "music"]
    status, out, _ = told(capsys, "run", "--hf", folder, *texts, "--save", str(tmp_path / "run"))
    assert status == 0
    assert out.splitlines()[0].startswith("BertForSequenceClassification  ")
    assert any("layer.0 … layer.2 ×3" in line for line in out.splitlines())
    trace = fxdebug.load(tmp_path / "run")
    assert {slot: value.shape for slot, value in trace.root.inputs.named()} == {
        "input_ids": (2, 5), "attention_mask": (2, 5),
    }  # fmt: skip
    assert trace.root.outputs["logits"].shape == (2, 2)


def test_no_line_of_the_program_called_a_model_that_a_command_runs(model, tmp_path, capsys):
    script = Path(sys.executable).with_name("fxdebug")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "fxdebug"]
    for number, start in enumerate((command, [sys.executable, "-m", "fxdebug"])):
        folder = str(tmp_path / f"run-{number}")
        subprocess.run([*start, "run", f"{model}:build", "--save", folder], check=True, capture_output=True)
        trace = fxdebug.load(folder)
        assert trace.root.source is None
        assert all(call.source is None or "net.py" in call.source or "torch" in call.source for call in trace.calls)


def test_run_gives_a_decoder_the_token_it_begins_with(tmp_path, capsys):
    from transformers import T5Config

    config = T5Config(
        vocab_size=7, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=1, eos_token_id=2,
        pad_token_id=1,
    )  # fmt: skip
    folder = checkpoint(tmp_path / "t5", "T5ForConditionalGeneration", config, model_input_names="input_ids")
    status, out, err = told(capsys, "run", "--hf", folder, "--text", "a man", "--depth", "1")
    assert status == 0, err
    assert "1×1×7" in out and "decoder" in out
    assert told(capsys, "run", "--hf", folder, "--text", "a", "--text", "a man")[2] == (
        f"fxdebug: the tokenizer of {folder!r} has no padding token: give one --text at a time\n"
    )


def test_run_of_a_folder_without_a_model_says_so(tmp_path, capsys):
    status, out, err = told(capsys, "run", "--hf", str(tmp_path))
    assert (status, out) == (2, "")
    assert err.startswith(f"fxdebug: no model can be loaded from {str(tmp_path)!r}: ")


def test_run_without_transformers_names_the_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert told(capsys, "run", "--hf", str(tmp_path)) == (
        2, "", "fxdebug: loading a transformers model needs the package 'transformers': "
        "pip install 'fxdebug[transformers]'\n",
    )  # fmt: skip


def test_every_command_that_prints_data_prints_it_as_json_and_csv():
    """The others write files, start or build programs, talk to somebody, or tell one verdict, which is no table."""
    forms = {
        command.function.__name__: {flag for argument in command.arguments for flag in argument.flags}
        for command in main.commands()
    }
    without = {name for name, flags in forms.items() if not {"--json", "--csv"} <= flags}
    assert without == {"debug", "export", "learn", "mcp", "native", "open", "page", "serve"}


def test_compare_prints_json_with_its_schema_and_csv(tmp_path, capsys):
    for name, scale in (("a", 1), ("b", 2)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        with torch.no_grad():
            model[0].weight.mul_(scale)
        fxdebug.fx_debug(model, torch.ones(1, 2), save=tmp_path / name)
    runs = [str(tmp_path / name) for name in "ab"]
    assert main.main(["compare", *runs, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["schema"] == "fxdebug.compare/1"
    assert main.main(["compare", *runs, "--csv"]) == 1
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {"position", "verdict", "a_path", "b_mean"} <= rows[0].keys() and len(rows) >= 3
    assert main.main(["compare", *runs, "--csv", "--json"]) == 2


def test_compare_of_two_models_tries_the_cause_and_refuses_a_model_against_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef original():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), torch.randn(3, 4)\n\n\n"
        "def port():\n    model, _ = original()\n    model[1].eps = 0.3\n    return model, None\n"
    )
    assert main.main(["compare", "model.py:original", "model.py:port"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "tried layer_norm with the settings of a: with this edit b returns what a returns" in told
    assert main.main(["compare", "model.py:original", "model.py:port", "--repro", "repro"]) == 1
    assert capsys.readouterr().out.endswith(f"\n\nwrote {Path('repro', 'repro.py')}\n")
    assert "eps=0.3" in Path("repro", "repro.py").read_text()
    assert main.main(["compare", "model.py:original", "model.py:port", "--repro", "."]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert main.main(["compare", "model.py:original", "model.py:original", "--repro", "none"]) == 0
    assert not Path("none").exists()
    assert main.main(["compare", "model.py:original", "runs"]) == 2
    assert "give two runs, or two functions FILE.py:function" in capsys.readouterr().err


def test_compare_quantised_prints_a_report_and_no_faults(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef original():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)), torch.randn(3, 4)\n\n\n"
        "def small():\n    model, _ = original()\n    weight = model[0].weight.data\n"
        "    weight.copy_((weight * 8).round() / 8)\n    return model, None\n"
    )
    both = ["compare", "model.py:original", "model.py:small", "--quantised"]
    assert main.main([*both, "--width", "80"]) == 0
    assert capsys.readouterr().out.startswith("leave `0` alone: 100 % of the error of the result; without it ")
    assert main.main([*both, "--json", "-o", "small.csv"]) == 0
    assert json.loads(capsys.readouterr().out)["analysis"] == "quantised"
    assert Path("small.csv").read_text().splitlines()[1].startswith("0,Linear,4×4,")
    assert main.main([*both, "--csv"]) == 0
    assert main.main([*both, "--measures", "flops"]) == 2
    assert "--quantised prints a report of its own" in capsys.readouterr().err

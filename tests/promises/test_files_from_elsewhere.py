"""Nothing from a file is trusted: a damaged run gives a result or a ``LoadError``. ``make fuzz`` runs 10,000 cases."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

import fxdebug
from fxdebug.errors import LoadError
from support import mutations
from support.stored import Small, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="alarms and pipes are POSIX")
CASES = 90
SECONDS = 10  # for one case; `make fuzz` allows 5 s for each command


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Runs of every kind, and a folder that none of them may lead to."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text(mutations.SECRET + "\n")
    os.mkfifo(outside / "pipe")
    return mutations.make_seeds(tmp_path_factory.mktemp("seeds")), outside


@pytest.mark.parametrize("first", range(0, CASES, 30))
def test_a_damaged_run_gives_a_result_or_a_load_error(
    first: int, seeds: tuple[list[Path], Path], tmp_path: Path
) -> None:
    runs, outside = seeds
    for number in range(first, first + 30):
        rng = Random(number)
        seed = rng.choice(runs)
        folder = tmp_path / f"case-{number}"
        shutil.copytree(seed if seed.is_dir() else seed.parent, folder, symlinks=True)
        target = folder if seed.is_dir() else folder / seed.name
        done = mutations.mutate(target, rng, outside)
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(SECONDS)
        try:
            commands = rng.sample(mutations.commands(str(target), str(runs[0]), tmp_path), 2)
            try:
                printed = mutations.ask_in_python(target)
            except LoadError as error:
                printed, commands = str(error), commands[:1]
            printed += "\n".join(mutations.run_command(command)[1] for command in commands)
        except Exception as error:
            raise AssertionError(f"case {number}: {seed.name}: {done}") from error
        finally:
            signal.alarm(0)
        assert mutations.complaints(printed) == [], f"case {number}: {seed.name}: {done}"


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


@pytest.mark.parametrize(
    "place", ["/etc/passwd", "/dev/zero", "{outside}/pipe", "{outside}/secret", "{cwd}/pyproject.toml"]
)
def test_compare_prints_no_file_that_a_trace_names(
    place: str, seeds: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Small()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.block[1].weight += 1
    run(model, save=tmp_path / "a")
    run(other, save=tmp_path / "b")
    named = place.format(outside=seeds[1], cwd=Path.cwd())
    shown = str(fxdebug.compare(fxdebug.load(tmp_path / "a"), fxdebug.load(tmp_path / "b")))
    assert "return {" in shown or "self." in shown  # the text of the line is stored in the trace
    for name in "ab":
        content = json.loads((tmp_path / name / "trace.json").read_text())
        content.pop("source_lines")
        text = json.dumps(content)
        for source in {line for line in _texts(content) if ".py:" in line}:
            text = text.replace(json.dumps(source), json.dumps(f"{named}:1"))
        (tmp_path / name / "trace.json").write_text(text)
    told = str(fxdebug.compare(fxdebug.load(tmp_path / "a"), fxdebug.load(tmp_path / "b")))
    assert f"{named.rpartition('/')[2]}:1" in told
    for secret in (mutations.SECRET, "root:", "build-system"):
        assert secret not in told


def _texts(content: Any) -> list[str]:
    pending, found = [content], []
    while pending:
        item = pending.pop()
        if isinstance(item, (list, dict)):
            pending.extend(item.values() if isinstance(item, dict) else item)
        elif isinstance(item, str):
            found.append(item)
    return found


@pytest.mark.parametrize(
    ("table", "column", "row", "cell", "told"),
    [
        ("calls", "parent_index", 1, 3, "calls[1].parent_index is 3, which is no earlier call"),
        ("calls", "parent_index", 1, None, "calls[1] has no parent, and is not the first call"),
        ("calls", "depth", 1, 10**6, "calls[1].depth is 1000000, its parent's is 0"),
        ("calls", "index", 1, 0, "calls[1].index is 0"),
        ("calls", "duration", 0, "fast", "calls[0].duration is 'fast', not an integer or a number"),
        ("calls", "origin", 0, "elsewhere", "calls[0].origin is 'elsewhere', not one of 'registered', 'late'"),
        ("calls", "inputs", 0, [[{"value": -1}], {}], "calls[0].inputs.args[0] is value -1 of"),
        ("calls", "inputs", 0, [[{"sequence": "list"}], {}], "calls[0].inputs.args[0] is a container whose items"),
        ("calls", "outputs", 0, [10**900], "calls[0].outputs.item is an integer of 2990 bits"),
        ("values", "shape", 0, [2**40, 2**40], "values[0].shape is a list of 2, not the shape of a tensor"),
        ("values", "dtype", 0, "float32\x1b[31m", "values[0].dtype is 'float32\\x1b[31m', not a name of torch"),
        ("values", "stats", 0, [1, 0.0, 0.0, 0.0, 0.0, 0.0, 5], "values[0].stats counts more elements than there are"),
        ("values", "saved", 0, "/etc/passwd#v0", "values[0].saved is '/etc/passwd#v0', not where a value can lie"),
        ("parameters", "names", 0, [], "parameters[0].names is empty"),
        ("bodies", "graph", 0, 99, "bodies[0].graph is 99 of"),
        ("bodies", "calls", 0, [], "bodies[0].calls are not the calls of its graph"),
        (
            "bodies",
            "status",
            0,
            "perfect",
            "bodies[0].status is 'perfect', not one of 'verified'",
        ),
    ],
)
def test_damage_is_named_by_file_and_field(
    table: str, column: str, row: int, cell: Any, told: str, tmp_path: Path
) -> None:
    run(Small(), save=tmp_path)
    content = json.loads((tmp_path / "trace.json").read_text())
    content[table]["rows"][row][content[table]["columns"].index(column)] = cell
    (tmp_path / "trace.json").write_text(json.dumps(content))
    with pytest.raises(LoadError) as raised:
        fxdebug.load(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}/trace.json is damaged: {told}")


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("10**10**10 > 1", True),
        ("absmax < 10**400", True),
        ("count*10**400 > 0 and -10**401 < 0", True),
        ("1" * 30 + " > 0", True),
    ],
)
def test_a_condition_with_huge_numbers_is_answered_at_once(line: str, holds: bool) -> None:
    assert bool(run(Small()).find(where=line)) is holds


@pytest.mark.parametrize(
    "line", ["9" * 5000 + " > 0", "-" * 1500 + "1 > 0", "(" * 150 + "1" + ")" * 150, "1+" * 900 + "1 > 0"]
)
def test_a_condition_that_is_too_long_or_deep_is_refused(line: str) -> None:
    if line.startswith("("):
        assert run(Small()).find(where=line + " > 0")  # brackets are no expressions
        return
    with pytest.raises(fxdebug.UsageError):
        run(Small()).find(where=line)


def test_operands_are_no_deeper_than_a_recording_makes_them(tmp_path: Path) -> None:
    run(Small(), save=tmp_path)
    text = (tmp_path / "trace.json").read_text()
    content = json.loads(text)
    for levels, is_damaged in ((250, False), (400, True), (50_000, True)):
        node = next(op for op in content["graphs"][0]["ops"] if op[1] == "call_function" or op[1] == "call_method")
        marked = json.dumps(content).replace(json.dumps(node[4]), '["here"]')
        deep = '{"sequence":"list","items":[' * levels + "1" + "]}" * levels
        (tmp_path / "trace.json").write_text(marked.replace('"here"', deep))
        if is_damaged:
            with pytest.raises(LoadError, match=r"containers more than 300 deep"):
                fxdebug.load(tmp_path)
        else:
            fxdebug.load(tmp_path).export(tmp_path / "run.dot")


def test_patterns_of_users_and_files_take_no_exponential_time(tmp_path: Path) -> None:
    trace = run(Small())
    globs = "*a" * 60 + "b"
    with pytest.raises(fxdebug.UsageError, match="no module of a has such a path"):
        fxdebug.compare(trace, trace, mapping={globs: globs})
    assert trace.find(path=globs) == []
    long = {"module_path": "M", "outputs": {"shape": "torch.Size([" + "1" * 60 + "x", "dtype": "torch.float32"}}
    (tmp_path / "M_debug_tree_SUMMARY.json").write_text(json.dumps(long))
    with pytest.raises(LoadError, match="is not the shape of a tensor"):
        fxdebug.load(tmp_path)


def hostile() -> torch.nn.Module:
    """A model whose names are escapes for the terminal and marks of direction."""
    kind = type(f"Odd{mutations.MARKS}", (torch.nn.Linear,), {})
    layers = torch.nn.ModuleDict({f"in{mutations.MARKS}": kind(4, 4), "out\ud800": torch.nn.LayerNorm(4)})
    model = torch.nn.Sequential(*layers.values())
    model._modules = dict(layers.items())
    return model


@pytest.mark.parametrize("form", ["", "--json", "--csv"])
@pytest.mark.parametrize(
    "command",
    [
        "show {run}", "show {run} --columns source,flops,params", "find {run}", "find {run} --where flops>=0",
        "find {run} --ops", "check {run}", "graph {run}", "compare {run} {run}", "measures {run}", "flops {run}",
        "summary {run}", "memory {run}", "profile {run}", "activations {run}", "attention {run}", "rules", "plugins",
    ],
)  # fmt: skip
def test_no_command_prints_what_a_terminal_obeys(command: str, form: str, tmp_path: Path) -> None:
    trace = fxdebug.fx_debug(hostile(), torch.ones(2, 4), values="tensors", save=tmp_path / "run")
    assert trace.calls[1].path == f"in{mutations.MARKS}"
    arguments = [part.format(run=tmp_path / "run") for part in command.split()] + [form] * bool(form)
    if arguments[0] == "graph" and not form:
        arguments += ["-o", str(tmp_path / "graph.txt")]
    status, printed = mutations.run_command(arguments)
    assert status in (0, 1, 2) and printed
    assert [line for line in printed.split("\n") if not line.isprintable()] == []
    if form == "--json" and printed.startswith("{"):
        assert json.loads(printed)["schema"]


def test_a_file_of_nothing_but_brackets_is_damaged(tmp_path: Path) -> None:
    run(Small(), save=tmp_path)
    for opens in ("[", '{"a":'):
        (tmp_path / "trace.json").write_text(opens * 1_100_000)
        with pytest.raises(LoadError, match=r"trace.json is not a trace: Nested more than 1,000,000 levels"):
            fxdebug.load(tmp_path)


class Passing(torch.nn.Module):
    """Uses the first of two arguments."""

    def forward(self, x: torch.Tensor, tree: Any) -> torch.Tensor:
        return x + 1


@pytest.mark.parametrize("innermost", [1, torch.ones(2)], ids=["number", "tensor"])
def test_a_run_with_an_argument_that_is_nested_deep_is_shown_by_every_command(innermost: Any, tmp_path: Path) -> None:
    tree = innermost
    for _ in range(1_500):
        tree = [tree, {"key": (tree,)}][-1]
    fxdebug.fx_debug(Passing(), (torch.ones(2), tree), save=tmp_path / "run")
    other = str(tmp_path / "run")
    assert mutations.ask_in_python(tmp_path / "run")
    for command in mutations.commands(other, other, tmp_path):
        status, printed = mutations.run_command(command)
        assert status in (0, 1) and "Traceback" not in printed, (command, printed)

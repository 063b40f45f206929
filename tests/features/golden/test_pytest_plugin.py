"""``trace_regression``: real inner runs of pytest, from the first one without a golden trace to a planted change."""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import fxdebug
from fxdebug.apps.cli import main
from fxdebug.features.golden.pytest_plugin import _console, file_name
from fxdebug.native import dispatch

ROOT = Path(__file__).parents[3]
SOURCE = Path(fxdebug.__file__).parents[1]
PLUGIN = "fxdebug.features.golden.pytest_plugin"
INSTALLED = any(entry.value == PLUGIN for entry in importlib.metadata.entry_points(group="pytest11"))

MODEL = """
import torch
from torch import nn

torch.set_num_threads(1)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.layer(self.norm(x)))

def build(**changes):
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block(), nn.Linear(8, 2)).eval()
    return model, torch.randn(3, 8)
"""

TEST = """
from model import build

def test_forward(trace_regression):
    model, x = build()
    trace_regression.check(model, x)
"""


@pytest.fixture(scope="module", autouse=True)
def everything_is_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What an inner run imports is forgotten after it: what is there before need not be imported by each."""
    trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2), values="samples")
    golden = fxdebug.save_golden(trace, tmp_path_factory.mktemp("golden") / "linear.json.gz")
    assert "equal" in str(fxdebug.compare(golden, trace))


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    """A folder with a model and a test of it. Python takes the statistics in all processes: they have another home."""
    monkeypatch.setenv("FXDEBUG_NATIVE", "0")
    monkeypatch.setenv("PYTHONPATH", f"{SOURCE}:{pytester.path}")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a model that changes twice a second is read anew
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    pytester.syspathinsert()
    pytester.makepyfile(model=MODEL, test_model=TEST)
    with dispatch.using(None):
        yield pytester


OTHERS = ("hypothesispytest", "anyio", "timeout", "cacheprovider")  # not ours, and slow to start
OPTIONS = [*([] if INSTALLED else ["-p", PLUGIN]), *[word for name in OTHERS for word in ("-p", f"no:{name}")]]


def run(inner: pytest.Pytester, *options: str) -> pytest.RunResult:
    """A pytest inside this process, which has torch already."""
    return inner.runpytest_inprocess(*OPTIONS, *options)


def goldens(inner: pytest.Pytester) -> dict[str, bytes]:
    return {str(p.relative_to(inner.path)): p.read_bytes() for p in sorted(inner.path.rglob("*.json.gz"))}


GOLDEN = "golden_traces/test_model/test_forward.json.gz"


def test_from_no_golden_trace_to_a_planted_change(inner, capsys):
    first = run(inner, "-q")
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines([f"there is no golden trace {GOLDEN}", "write it: pytest --fxdebug-update*"])
    assert goldens(inner) == {}

    update = run(inner, "-q", "--fxdebug-update")
    update.assert_outcomes(passed=1)
    update.stdout.fnmatch_lines(["*golden traces written*", f"{GOLDEN}  8 calls, * KiB, new"])
    assert list(goldens(inner)) == [GOLDEN]

    run(inner, "-q").assert_outcomes(passed=1)
    again = run(inner, "--fxdebug-update")
    again.stdout.fnmatch_lines([f"{GOLDEN}  8 calls, * KiB, as it was"])

    inner.makepyfile(model=MODEL.replace("gelu(self.layer", "relu(self.layer"))
    for options in (("-x", "-q"), ()):
        changed = run(inner, *options)
        changed.assert_outcomes(failed=1)
        changed.stdout.fnmatch_lines(
            ["the run differs from its golden trace in 0/relu", "*gelu in a, relu in b*", "*if the change is intended*"]
        )
    run(inner, "--fxdebug-update").stdout.fnmatch_lines([f"{GOLDEN}  8 calls, * KiB, changed"])
    run(inner).assert_outcomes(passed=1)
    assert main.main(["show", str(inner.path / GOLDEN)]) == 0
    assert "Sequential  8 calls" in capsys.readouterr().out


def test_the_console_opens_at_the_first_difference(inner):
    run(inner, "-q", "--fxdebug-update").assert_outcomes(passed=1)
    inner.makepyfile(model=MODEL.replace("gelu(self.layer", "relu(self.layer"))
    words = [sys.executable, "-m", "pytest", *OPTIONS, "-q", "--fxdebug-debug"]
    done = inner.run(*words, stdin=b"print op\nback\nwhere\nquit\n")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "Sequential  8 calls, * stops. Here they differ first; goto start leads to the*",
            "> 0#0/relu  relu  model.py:*",
            "(fxdebug) print op",
            "relu",
            "(fxdebug) where",
            "> 0.layer#0  Linear  *",
            "the run differs from its golden trace in 0/relu",
        ]
    )
    with pytest.raises(pytest.UsageError, match="--fxdebug-debug needs the terminal: run pytest with -n 0"):
        _console(SimpleNamespace(workerinput={}))  # in a process of pytest-xdist


def test_several_checks_classes_parameters_and_names_have_files_of_their_own(inner):
    inner.makepyfile(
        test_model="""
        import pytest
        from model import build

        class TestBoth:
            @pytest.mark.parametrize("rows", [1, 2])
            @pytest.mark.parametrize("how", ["a/b"])
            def test_rows(self, trace_regression, rows, how):
                model, x = build()
                trace = trace_regression.check(model, x[:rows])
                assert trace.output.shape == (rows, 2)
                trace_regression.check(model, (), {"input": x[:rows] + 1})

        def test_one(trace_regression):
            trace_regression.check(*build(), name="shared")

        def test_other(trace_regression):
            trace_regression.check(*build(), name="shared")
        """
    )
    done = run(inner, "--fxdebug-update", "-n", "2")  # processes of their own, which tell what they wrote
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines(["*golden traces written*", "*shared.json.gz  8 calls, * KiB, *"])
    before = goldens(inner)
    assert [re.sub("-[0-9a-f]{6}", "", Path(name).name) for name in before] == [
        "TestBoth.test_rows_a_b-1.json.gz", "TestBoth.test_rows_a_b-1_-2.json.gz", "TestBoth.test_rows_a_b-2.json.gz",
        "TestBoth.test_rows_a_b-2_-2.json.gz", "shared.json.gz",
    ]  # fmt: skip
    run(inner).assert_outcomes(passed=4)
    run(inner, "--fxdebug-update").stdout.fnmatch_lines(["*shared.json.gz  8 calls, * KiB, as it was"])
    assert goldens(inner) == before


def test_a_damaged_golden_trace_and_a_model_that_raises(inner):
    run(inner, "--fxdebug-update").assert_outcomes(passed=1)
    path = inner.path / GOLDEN
    path.write_bytes(path.read_bytes()[:-100])
    done = run(inner)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["*test_forward.json.gz is cut short or damaged*", "write it again: pytest --fxdebug-update*"]
    )
    inner.makepyfile(model=MODEL.replace("return x +", "raise ValueError('no way') #"))
    run(inner).stdout.fnmatch_lines(["E*ValueError: no way"])


def test_options_of_the_comparison_reach_it(inner):
    run(inner, "--fxdebug-update").assert_outcomes(passed=1)
    inner.makepyfile(model=MODEL.replace("nn.LayerNorm(8)", "nn.LayerNorm(8, eps=1e-4)"))
    run(inner).assert_outcomes(failed=1)
    inner.makepyfile(test_model=TEST.replace("(model, x)", "(model, x, tolerance=0.1)"))
    run(inner).assert_outcomes(passed=1)
    inner.makepyfile(
        model=MODEL.replace("nn.LayerNorm(8)", "nn.LayerNorm(8, eps=1e-4)").replace("self.norm", "self.before"),
        test_model=TEST.replace(
            "(model, x)", "(model, x, tolerance=0.1, mapping={'*.norm': '*.before'}, ignore=['9'])"
        ),
    )
    run(inner).assert_outcomes(passed=1)


def test_a_transposition_that_statistics_do_not_see_is_noticed(inner):
    square = "model, x = build()\n    trace_regression.check(model[0].layer, x.new_tensor(range(64)).view(8, 8){})"
    inner.makepyfile(
        test_model=TEST.replace("model, x = build()\n    trace_regression.check(model, x)", square.format(""))
    )
    run(inner, "--fxdebug-update").assert_outcomes(passed=1)
    inner.makepyfile(
        test_model=TEST.replace("model, x = build()\n    trace_regression.check(model, x)", square.format(".flip(0)"))
    )
    run(inner).assert_outcomes(failed=1)


def test_the_same_run_gives_the_same_bytes_in_another_process_and_folder(inner, tmp_path):
    code = "import sys, fxdebug; from model import build\n"
    code += "fxdebug.save_golden(fxdebug.fx_debug(*build(), values='samples'), sys.argv[1])"
    files = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "model.py").write_text("\n" * number + MODEL)
        environment = {"PYTHONPATH": f"{SOURCE}:{folder}", "PYTHONHASHSEED": str(number), "HOME": str(folder)}
        subprocess.run([sys.executable, "-c", code, "golden.json.gz"], cwd=folder, env=environment, check=True)
        files.append((folder / "golden.json.gz").read_bytes())
    assert files[0] == files[1]
    text = gzip.decompress(files[0]).decode()
    assert str(tmp_path) not in text and "model.py" not in text and str(ROOT) not in text
    json.loads(text)


def test_the_plugin_loads_nothing_heavy_and_does_nothing_when_unused(inner):
    inner.makepyfile(
        test_model="""
        import sys

        def test_what_is_loaded(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("fxdebug") or pytestconfig.pluginmanager.hasplugin(
                "fxdebug.features.golden.pytest_plugin"
            )
            heavy = {"torch", "numpy", "rich", "networkx", "graphviz", "safetensors"}
            assert sorted(heavy & set(sys.modules)) == []
        """
    )
    done = inner.runpytest_subprocess(*OPTIONS)
    done.assert_outcomes(passed=1)
    assert "golden" not in done.stdout.str()


def test_pytest_finds_the_plugin_by_itself_where_fxdebug_is_installed() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert project["entry-points"]["pytest11"] == {"fxdebug": PLUGIN}
    code = f"import sys, {PLUGIN}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("test_forward", "test_forward"), ("a/b", "a_b-"), ("a b", "a_b-"), ("x" * 300, "x" * 113 + "-"), ("..", "-")],
)
def test_names_are_files_of_every_system_and_stay_apart(name, beginning):
    made = file_name(name)
    assert made.startswith(beginning) and len(made) <= 120 and (made == name or re.fullmatch(r".*-[0-9a-f]{6}", made))
    assert file_name("a/b") != file_name("a b")

"""``fxdebug watch train.py``, ``FXDEBUG_WATCH=DIR``: a script runs as it would, and what it trains is watched."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch

import fxdebug
from fxdebug.apps.cli.main import main
from fxdebug.features.training.saved.training_file import read_training
from support import sweep
from support.begun import TORCH, ran

MAKES = """
import os, sys
import torch
from torch import nn
torch.manual_seed(0)
def train(net, optimizer, steps=30):
    for _ in range(steps):
        x = torch.randn(16, 4)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
def make():
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)
"""
ENDS = "\nprint(sys.argv[1:], __name__, torch.rand(1).item(), os.environ.get('PYTHONPATH'))\n"
SCRIPTS = {
    "one model": (MAKES + "net, optimizer = make(); print(train(net, optimizer))" + ENDS + "sys.exit(3)", 3),
    "none": ("import sys\nprint(sys.argv)", 0),
    "two models, and it raises": (
        MAKES + "for net, optimizer in (make(), make()): print(train(net, optimizer))" + ENDS
        + "raise KeyError('over')", 1,
    ),
    "it forks": (
        MAKES + "if not (pid := os.fork()):\n    train(*make())\n    os._exit(0)\nos.waitpid(pid, 0)\n"
        "net, optimizer = make(); print(train(net, optimizer))" + ENDS, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_the_status_and_the_output_that_it_has_by_itself(name: str, tmp_path: Path) -> None:
    text, status = SCRIPTS[name]
    script = tmp_path / "train.py"
    script.write_text(text)
    plain = ran([sys.executable, script, "--epochs", "3"], cwd=tmp_path)
    command: list[str | Path] = [sys.executable, "-m", "fxdebug", "watch", "--save", "seen", script, "--epochs", "3"]
    watched = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (plain.returncode, plain.stdout) == (status, watched.stdout)
    assert watched.returncode == status
    told = [line for line in watched.stderr.splitlines() if line.startswith("fxdebug: ")]
    if name == "none":
        assert told == [
            "fxdebug: nothing was watched: no optimizer of torch made a step in the script's own process "
            "(FXDEBUG_WATCH=FOLDER watches those that it starts, too)"
        ]
        assert not (tmp_path / "seen").exists()
        return
    assert len(read_training(tmp_path / "seen").steps) >= 29
    count = 2 if name == "two models, and it raises" else 1
    assert [line.split(":")[1] for line in told] == [" Sequential"] * count
    if count == 2:
        assert (
            "KeyError: 'over'" in watched.stderr and len(read_training(tmp_path / "seen" / "Sequential-2").steps) >= 29
        )
        assert [incident.trouble for incident in read_training(tmp_path / "seen").incidents] == ["exception"]


def test_a_script_that_is_not_there_is_told_and_behind_a_folder_stand_options_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path / "none.py")]) == 2
    assert "none.py is no file: give a Python script" in capsys.readouterr().err
    with fxdebug.watch(torch.nn.Linear(1, 1), save=tmp_path):
        pass
    for arguments in (["--json", str(tmp_path)], [str(tmp_path), "--json"]):
        assert main(["watch", *arguments]) == 0
        assert json.loads(capsys.readouterr().out)["answer"] == "cannot tell: no loss was seen in 0 steps"
    with pytest.raises(SystemExit):
        main(["watch", str(tmp_path), "--epochs", "3"])
    assert "unrecognized arguments: --epochs 3" in capsys.readouterr().err


def test_learn_runs_a_script_too_and_tries_at_its_end_what_a_folder_has_nothing_left_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(MAKES.replace("lr=1e-2", "lr=1e-7") + "train(*make(), steps=60)")
    command: list[str | Path] = [sys.executable, "-m", "fxdebug", "learn", "--try", "60", "--save", "seen", script]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stderr
    assert " Tried on a copy: 40 steps with a learning rate of " in told
    assert main(["learn", str(tmp_path / "seen"), "--try", "60", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["rule"] == "learning rate too low"
    with fxdebug.watch(torch.nn.Linear(1, 1), save=tmp_path / "plain"):
        pass
    assert main(["learn", str(tmp_path / "plain"), "--try", "60"]) == 2
    assert (
        "has no weights and no batches to try a change on: `fxdebug learn --try 60 SCRIPT.py" in capsys.readouterr().err
    )


# By the environment ------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]
LINE = ROOT / "tools" / "wheels" / "fxdebug_watch.pth"
ENDS_BOTH = "\nprint(sys.argv[1:], __name__, torch.rand(1).item())\n"
BY_ENVIRONMENT = {
    "one model": (MAKES + "print(train(*make()))" + ENDS_BOTH + "sys.exit(3)", 3, [""]),
    "none": ("import sys\nprint(sys.argv[1:], 'torch' in sys.modules)", 0, []),
    "it raises": (MAKES + "print(train(*make()))\nraise KeyError('over')", 1, [""]),
    "it calls os._exit": (MAKES + "print(train(*make()), flush=True)\nos._exit(7)", 7, [""]),
    "it forks in mid-training, and both go on": (
        MAKES + "net, optimizer = make()\ntrain(net, optimizer)\nif not (pid := os.fork()):\n"
        "    print(train(net, optimizer), flush=True)\n    os._exit(0)\nos.waitpid(pid, 0)\n"
        "print(train(net, optimizer))" + ENDS_BOTH, 0, ["", "process-"],
    ),
    "workers load the data, others train": (
        "import torch.multiprocessing as mp\nfrom torch.utils.data import DataLoader\n" + MAKES
        + "def work(number):\n    train(*make())\n"
        "if __name__ == '__main__':\n    list(DataLoader(torch.ones(8, 4), num_workers=2))\n"
        "    print(train(*make()))\n    mp.spawn(work, (), nprocs=1)\n"
        "    child = mp.get_context('fork').Process(target=work, args=(1,))\n    child.start()\n    child.join()\n"
        + ENDS_BOTH, 0, ["", "process-", "process-"],
    ),
    "it starts a script": (
        MAKES + "import subprocess\nprint(train(*make()), flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'print(1)'])\n"
        "if len(sys.argv) == 3:\n    subprocess.run([sys.executable, *sys.argv[:2]])" + ENDS_BOTH, 0, ["", "process-"],
    ),
    "its model is no module": (
        "import torch\nw = torch.ones(3, requires_grad=True)\no = torch.optim.SGD([w], 0.1)\n"
        "w.sum().backward()\no.step()\nprint(w)", 0, [],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has what a wheel brings; its packages are those of this one."""
    root = tmp_path_factory.mktemp("installed")
    venv.EnvBuilder(with_pip=False).create(root)
    site = next(root.rglob("site-packages"))
    (site / LINE.name).write_bytes(LINE.read_bytes())
    (site / "a.pth").write_text("\n".join(path for path in sys.path if path))
    return root / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@pytest.mark.parametrize("name", sweep.sampled(BY_ENVIRONMENT, 4, ["it forks", "it starts", "none"]))
def test_the_variable_watches_a_script_that_runs_as_it_would(name: str, python: Path, tmp_path: Path) -> None:
    if "fork" in name + BY_ENVIRONMENT[name][0] and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    text, status, folders = BY_ENVIRONMENT[name]
    script = tmp_path / "train.py"
    script.write_text(text)
    bare = {key: value for key, value in os.environ.items() if key not in ("FXDEBUG_WATCH", "PYTHONPATH")}
    imports = "" if name == "none" else TORCH  # that one tells whether torch is there
    plain = ran([sys.executable, script, "--epochs", "3"], imports=imports, cwd=tmp_path, env=bare)
    # a process that is forked waits for ever for OpenMP threads that a watch started
    environment = bare | {"FXDEBUG_WATCH": "seen", "OMP_NUM_THREADS": "2"}
    command = [python, script, "--epochs", "3"]
    watched = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert (plain.returncode, plain.stdout) == (status, watched.stdout)
    assert watched.returncode == status
    told = [line for line in watched.stderr.splitlines() if line.startswith("fxdebug: ")]
    assert [line for line in watched.stderr.splitlines() if line not in told] == plain.stderr.splitlines()
    found = sorted(path.parent.relative_to(tmp_path / "seen") for path in (tmp_path / "seen").rglob("*.jsonl"))
    assert [str(one).rstrip("0123456789").replace(".", "") for one in found] == folders
    assert all(len(read_training(tmp_path / "seen" / one).steps) >= 29 for one in found)
    if name == "it forks in mid-training, and both go on":
        assert len(read_training(tmp_path / "seen").steps) == 60  # the child's 30 are its own
    if name == "its model is no module":
        assert told == ["fxdebug: SGD has parameters of no module that is left: it is not watched"]


def test_no_look_asks_for_what_starts_openmp_threads() -> None:
    """``max(dim)`` starts them for sixteen numbers, ``amax`` and ``argmax`` do not; a forked process waits for them."""
    threads = {"max", "min", "median", "mode", "kthvalue"}
    found = []
    for path in sorted(Path(fxdebug.__file__).parent.glob("features/training/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_method = (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in threads
            )
            if is_method and (node.args or any(one.arg == "dim" for one in node.keywords)):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


def test_without_the_variable_the_line_imports_nothing(python: Path) -> None:
    bare = {key: value for key, value in os.environ.items() if key not in ("FXDEBUG_WATCH", "PYTHONPATH")}
    code = "import sys; print([name for name in sys.modules if name.partition('.')[0] in ('fxdebug', 'torch')])"
    for environment, expected in ((bare, True), (bare | {"FXDEBUG_WATCH": "seen"}, False)):
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, env=environment, check=True).stdout
        assert (told == "[]\n") is expected and "torch" not in told


def test_a_failure_at_the_start_is_told_and_the_script_runs(python: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "FXDEBUG_WATCH": "seen", "FXDEBUG_TRY": "long"}
    done = subprocess.run([python, "-c", "print(1)"], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.startswith("fxdebug: the script is not watched: ValueError: could not convert string")


def test_wheels_bring_the_line_and_list_it(tmp_path: Path) -> None:
    sys.path.insert(0, str(LINE.parent))
    try:
        import backend
    finally:
        sys.path.remove(str(LINE.parent))
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("a/__init__.py", "")
        wheel.writestr("a-1.dist-info/RECORD", "a/__init__.py,,\na-1.dist-info/RECORD,,\n")
    assert backend.with_line(str(tmp_path), "a.whl") == "a.whl"
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        assert wheel.namelist() == [LINE.name, "a/__init__.py", "a-1.dist-info/RECORD"]
        assert wheel.read(LINE.name) == LINE.read_bytes()
        first, *others = wheel.read("a-1.dist-info/RECORD").decode().splitlines()
    assert first.startswith(f"{LINE.name},sha256=") and first.endswith(f",{LINE.stat().st_size}")
    assert others == ["a/__init__.py,,", "a-1.dist-info/RECORD,,"]

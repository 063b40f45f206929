"""Do the oldest torch that pyproject.toml promises and the two newest work: ``make compat``.

``python tools/compat.py [NAME ...]`` makes a virtual environment in ``.compat/`` for each of :data:`USUAL` (or those of
:data:`SETUPS` that are named), the oldest with the lowest declared versions of all dependencies, builds the native core
there where a C++ compiler is, and runs :data:`TESTS`, folder by folder.
An interpreter is looked for on the path (``python3.13``), then among pyenv's. On Linux, PyPI has torch built for CUDA:
it is installed without CUDA's libraries (0.9 GB), see ``tools/cuda_stubs.py``. Exits with 1 if a test fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import cuda_stubs

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".compat"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TORCH_NEEDS = "filelock typing-extensions sympy networkx jinja2 fsspec setuptools".split()
TEST_NEEDS = "pytest pytest-timeout pytest-xdist pillow pygraphviz matplotlib hypothesis psutil tqdm pyyaml".split()
TRANSFORMERS = "transformers"

# Each kind of thing that is done with torch's private names, and each way of saving and showing a run.
TESTS = "native capture promises stats store query comparison analyses exports api".split()


@dataclass(frozen=True)
class Setup:
    """A Python and a torch; with ``lowest``, all other dependencies are as old as pyproject.toml allows."""

    name: str
    python: str
    torch: str
    lowest: bool = False


SETUPS = (
    Setup("oldest", "3.11", "2.8.0", lowest=True),
    Setup("newest-python-oldest-torch", "3.13", "2.8.0"),
    Setup("between", "3.12", "2.13.0"),
    Setup("newest-but-one", "3.11", "2.14.1"),
    Setup("newest", "3.13", "2.15.0"),
)
USUAL = ("oldest", "newest-but-one", "newest")


def main(words: list[str]) -> int:
    """Make and test; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(setup.name for setup in SETUPS)}", metavar="NAME")
    parser.add_argument("--tests", default=" ".join(TESTS), help="folders of tests")
    chosen = parser.parse_args(words)
    names = chosen.names or USUAL
    unknown = set(names) - {setup.name for setup in SETUPS}
    if unknown:
        parser.error(f"no such setup: {', '.join(sorted(unknown))}")
    failed = [setup for setup in SETUPS if setup.name in names and not _passes(setup, chosen.tests.split())]
    return 1 if failed else 0


def _passes(setup: Setup, tests: list[str]) -> bool:
    """Does each of the folders of tests pass in there? Says what each of them came to."""
    venv = FOLDER / setup.name
    if not (venv / "ready").exists():
        _install(setup, venv)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    if (venv / "cuda-stubs").exists():
        environment["LD_LIBRARY_PATH"] = str(venv / "cuda-stubs")
    environment["XDG_CACHE_HOME"] = str(venv / "cache")
    print(f"{setup.name}: Python {setup.python}, torch {setup.torch}", flush=True)
    passes = _is_built(venv, environment)
    for name in tests:
        command = [str(venv / "bin" / "python"), "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--tb=line"]
        command.append(str(ROOT / "tests" / name))
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["nothing was said"]
        print(f"  {name:24} {lines[-1].strip('= ')}", flush=True)
        print("".join(f"      {line}\n" for line in lines if line.startswith(("FAILED", "ERROR"))), end="", flush=True)
        passes = passes and done.returncode == 0
    return passes


def _is_built(venv: Path, environment: dict[str, str]) -> bool:
    """Can the native core be built there, or can it not be on this machine? Says which, or what the compiler says."""
    command = [str(venv / "bin" / "python"), "-m", "fxdebug", "native", "build", "--strict", "--if-possible"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else done.stderr.strip().splitlines()
    print(f"  {'the native core':24} {lines[-1] if done.returncode == 0 else ''}", flush=True)
    print("".join(f"      {line}\n" for line in lines if done.returncode), end="", flush=True)
    return done.returncode == 0


def _install(setup: Setup, venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([_interpreter(setup.python), "-m", "venv", str(venv)], check=True)
    _pip(venv, "--no-deps", f"torch=={setup.torch}")
    bounds = [bound for bound in PROJECT["dependencies"] if not bound.startswith("torch")]
    if setup.lowest:
        bounds = [bound.replace(">=", "==") for bound in bounds]
    _pip(venv, *TORCH_NEEDS, *bounds, *TEST_NEEDS)
    _pip(venv, "--no-deps", TRANSFORMERS)
    _pip(venv, "huggingface-hub", "tokenizers", "regex", *bounds)
    if list(venv.glob("lib/python3*/site-packages/torch/lib/libtorch_cuda.so")):
        cuda_stubs.main(venv)
    (venv / "ready").touch()


def _pip(venv: Path, *words: str) -> None:
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")


def _interpreter(version: str) -> str:
    on_path = shutil.which(f"python{version}")
    if on_path is not None and _works(on_path, version):
        return on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [path / "bin" / "python" for path in pyenv.glob(f"{version}.*")]
    working = [str(path) for path in found if _works(str(path), version)]
    if not working:
        raise SystemExit(f"no Python {version} on the path nor in {pyenv}: install one (pyenv install {version})")
    return max(working, key=lambda path: [int(number) for number in re.findall(r"\d+", path)])


def _works(python: str, version: str) -> bool:
    """Is it that Python, and not pyenv's stand-in for one that is not switched on?"""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False).stdout.strip() == version


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

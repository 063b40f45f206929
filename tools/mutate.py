"""Change random places of a room and run the tests of that room alone: which changes do they not notice?

python tools/mutate.py query [--count 60] [--seed 7] [--file query/find.py] [--seconds 240] [--tests PATH …]

A comparison is turned or loosened, ``and`` becomes ``or``, + becomes −, a constant another, a result ``None``. One
change at a time is made in a copy of the tree, in which the examples of the file and the tests of the room then run, in
a fork of this process, until one fails. Prints each change that none noticed, and the share that was noticed; the exit
status is 1 below three quarters.
"""

from __future__ import annotations

import argparse
import ast
import copy
import doctest
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]
BAR = 0.75
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SIGNS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv}


@dataclass(frozen=True)
class Change:
    """One place of a file and the text that stands there instead."""

    path: Path
    line: int
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.before.split())}  →  {' '.join(self.after.split())}"


def changes_of(path: Path, text: str) -> Iterator[Change]:
    """Yield every change of one file that this tool makes.

    >>> [str(one) for one in changes_of(Path("a.py"), "def f(x):\\n    return x < 3\\n")]
    ['a.py:2: return x < 3  →  return None', 'a.py:2: x < 3  →  x <= 3', 'a.py:2: 3  →  4']
    """
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _nodes(ast.parse(text)):
        changed = _changed(node)
        if changed is not None:
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            before = text.encode()[begin:end].decode()
            after = ast.unparse(changed)
            if isinstance(node, (ast.Compare, ast.BoolOp, ast.BinOp)) and "\n" in before:
                after = f"({after})"
            yield Change(path, node.lineno, begin, end, before, after)


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes that run: no types, no docstrings, no imports for type checkers."""
    for name, inner in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params"):
            continue
        for each in inner if isinstance(inner, list) else [inner]:
            if not isinstance(each, ast.AST) or isinstance(each, ast.JoinedStr):
                continue
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                continue
            if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
                continue
            if isinstance(each, (ast.expr, ast.stmt)):
                yield each
            yield from _nodes(each)


def _changed(node: ast.expr | ast.stmt) -> ast.expr | ast.stmt | None:
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare):
        new.ops[0] = TURNED[type(new.ops[0])]()
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
    elif isinstance(new, ast.BinOp) and type(new.op) in SIGNS:
        new.op = SIGNS[type(new.op)]()
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        return new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        new.value = not new.value
    elif isinstance(new, ast.Constant) and isinstance(new.value, int):
        new.value += 1
    elif isinstance(new, ast.Return) and new.value is not None and not isinstance(new.value, ast.Constant):
        new.value = ast.Constant(None)
    else:
        return None
    return new


class Copy:
    """A copy of the tree, in which one file at a time is changed."""

    def __init__(self, root: Path, tests: Sequence[str]) -> None:
        self.root, self.tests = root, tests
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, root / name)

    def passes(self, timeout: float | None = None, module: str = "") -> bool:
        """Do the examples of a module and the tests of the room pass? Those of ``test_<module>.py`` run first."""
        child = os.fork()
        if not child:
            self._test(module)
        return _waited_for(child, timeout) == 0

    def _test(self, module: str) -> NoReturn:
        """Run the tests in this process, which is a fork in which torch is imported and nothing of ours, and end it."""
        code = 3
        try:
            os.setsid()
            source = str(self.root / "src")
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
            sys.path.insert(0, source)
            os.chdir(self.root)
            with (self.root / "said.txt").open("w") as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
            options = ["-x", "-q", "-p", "no:cacheprovider", *self.tests]
            plugins = [OwnFirst(module.rpartition(".")[2])]
            code = int(pytest.main(options, plugins=plugins)) if _examples_hold(module) else 1
        finally:
            os._exit(code)

    def notices(self, change: Change, timeout: float) -> bool:
        """Does a test fail with a change?"""
        place = self.root / "src" / "fxdebug" / change.path
        text = place.read_bytes()
        place.write_bytes(text[: change.begin] + change.after.encode() + text[change.end :])
        try:
            return not self.passes(timeout, ".".join(("fxdebug", *change.path.with_suffix("").parts)))
        finally:
            place.write_bytes(text)


class OwnFirst:
    """A plug-in of pytest: the tests of the changed file run before the others."""

    def __init__(self, stem: str) -> None:
        self.stem = stem

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests."""
        if self.stem:
            items.sort(key=lambda item: not item.path.stem.startswith(f"test_{self.stem}"))


def _examples_hold(module: str) -> bool:
    """Do the examples in the docstrings of a module print what they show, and can it be imported?"""
    if not module:
        return True
    imported = importlib.import_module(module.removesuffix(".__init__"))
    return doctest.testmod(imported).failed == 0


def _waited_for(child: int, timeout: float | None) -> int:
    """Return the exit status of a process, 1 of one that took too long; end what it started."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 1
        time.sleep(0.02)


def main() -> int:
    """Make the changes; return 1 where tests notice fewer than three quarters of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "room", help="a folder of src/fxdebug with tests in tests/, such as query or features/gradients"
    )
    parser.add_argument("--count", type=int, default=60, help="changes (default: 60)")
    parser.add_argument("--seed", type=int, help="of the choice (default: another one each time; it is printed)")
    parser.add_argument("--file", help="only changes in files with this in their path")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further change after this time")
    parser.add_argument("--tests", nargs="+", help="in place of those of the room: a slice of them for some files")
    options = parser.parse_args()
    package = ROOT / "src" / "fxdebug"
    files = sorted((package / options.room).rglob("*.py"))
    tests = options.tests or [f"tests/{options.room}"]
    if not files or not all((ROOT / test).exists() for test in tests):
        parser.error(f"{options.room} is no room with tests of its own")
    seed = random.randrange(10**6) if options.seed is None else options.seed
    every = [
        change
        for path in files
        if not options.file or options.file in str(path)
        for change in changes_of(path.relative_to(package), path.read_text(encoding="utf-8"))
    ]
    chosen = random.Random(seed).sample(every, min(options.count, len(every)))
    print(f"{options.room}: {len(chosen)} of {len(every)} places, seed {seed}", flush=True)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    import torch  # noqa: F401 - once for all changes: each runs in a fork of this process

    with tempfile.TemporaryDirectory() as folder:
        tree = Copy(Path(folder), tests)
        begin = time.perf_counter()
        if not tree.passes():
            print((tree.root / "said.txt").read_text())
            raise SystemExit(f"the tests of {options.room} fail without a change")
        whole = time.perf_counter() - begin
        survived = tried = 0
        for change in chosen:
            if time.perf_counter() - begin > options.seconds:
                break
            tried += 1
            if not tree.notices(change, 30 + 4 * whole):
                survived += 1
                print(f"  not noticed: {change}", flush=True)
    share = 1 - survived / max(tried, 1)
    print(f"{options.room}: {tried - survived} of {tried} noticed ({share:.0%}); a run takes {whole:.0f} s")
    return 0 if share >= BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())

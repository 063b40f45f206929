"""Change random places of a room and run the tests of that room alone: which changes do they not notice?

python tools/mutate.py query [--count 60] [--seed 7] [--file find.py] [--seconds 240] [--longest 60] [--tests PATH …]

A comparison is turned or loosened, ``and`` becomes ``or``, + becomes −, a constant another, a result ``None``. One
change at a time is made in a copy of the tree. A run without a change tells which tests run which blocks; with a change
the examples of its file and the tests that run its block then run, in a fork of a process in which all of them are
collected, until one fails. Prints what noticed each change, then those that nothing noticed, and the share that was
noticed; the exit status is 1 below three quarters. Tests that noticed something run once more without a change: what
fails then was no notice.
"""

from __future__ import annotations

import argparse
import ast
import copy
import doctest
import gc
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TextIO

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutate_blocks import block_name, blocks_of, mark

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
    block: str | None = None  # its name; None: what runs at the import

    @property
    def module(self) -> str:
        """The name of the module."""
        return ".".join(("fxdebug", *self.path.with_suffix("").parts)).removesuffix(".__init__")

    def made_in(self, text: bytes) -> bytes:
        """Return a file's text with the change; what follows stays in its lines."""
        lines = " \\\n" * (self.before.count("\n") - self.after.count("\n"))
        return text[: self.begin] + (self.after + lines).encode() + text[self.end :]

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
    tree = ast.parse(text)
    blocks = list(blocks_of(tree))
    for node in _nodes(tree):
        changed = _changed(node)
        if changed is not None:
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            before = text.encode()[begin:end].decode()
            after = ast.unparse(changed)
            if isinstance(node, (ast.Compare, ast.BoolOp, ast.BinOp)) and "\n" in before:
                after = f"({after})"
            holding = [block for block in blocks if _begin(block) <= (node.lineno, node.col_offset) < _end(block)]
            block = block_name(path.as_posix(), max(holding, key=_begin)) if holding else None
            yield Change(path, node.lineno, begin, end, before, after, block)


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
        self.root, self.tests = root / "tree", tests
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, self.root / name)

    @property
    def said(self) -> str:
        """What the last run of pytest printed."""
        return (self.root / "said.txt").read_text(errors="replace")

    def unchanged(self, room: str, longest: float) -> Runs:
        """Run the tests of the room as they are, and return which blocks of the room each of them runs."""
        package, started, note = (
            (self.root / "src" / "fxdebug").as_posix(),
            self.root.parent / "started.txt",
            self.root / "runs.json",
        )
        recorder = Recorder(started)
        marking = self.root.parent / "marking"
        marking.mkdir()
        (marking / "sitecustomize.py").write_text(
            f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            f"from mutate_blocks import mark\ndel sys.path[0]\nmark({package!r}, {room!r}, {str(started)!r})\n"
        )

        def before() -> None:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(marking), os.environ["PYTHONPATH"]])
            mark(package, room, str(started), recorder.blocks)

        if _waited_for(self._forked(self.tests, recorder, before=before, note=note)):
            raise SystemExit(f"{self.said}\nthe tests fail without a change")
        return Runs(**json.loads(note.read_text()) | {"longest": longest})

    def noticed_by(self, changes: Sequence[Change], runs: Runs, seconds: float) -> dict[Change, str | None]:
        """Make changes; return which test noticed each, None where none did. Begin none after so many seconds."""
        begin = time.perf_counter()
        noticed = self.warm(changes, runs, seconds)
        for name in runs.libraries:
            with suppress(Exception):
                importlib.import_module(name)
        for change in changes:
            if change not in noticed and time.perf_counter() - begin < seconds:
                noticed[change] = self.afresh(change, runs)
                _tell(change, noticed[change], sys.stdout)
        return {change: noticed[change] for change in changes if change in noticed}

    def warm(self, changes: Sequence[Change], runs: Runs, seconds: float) -> dict[Change, str | None]:
        """Make changes where everything is imported and collected; return which test noticed each.

        A change that shows only where its module is imported anew is not in the result.
        """
        note = self.root / "noticed.json"
        status = _waited_for(self._forked(self.tests, Warm(self, changes, runs, seconds), note=note))
        if status:
            raise SystemExit(f"{self.said}\npytest ends with {status}")
        found = json.loads(note.read_text())
        for test in found["unsure"]:
            print(f"  fails without a change after others: {test}")
            del runs.by_test[test]
        return {changes[int(number)]: test for number, test in found["noticed"].items()}

    def afresh(self, change: Change, runs: Runs) -> str | None:
        """Make a change and import everything; return the test that notices it."""
        tests = runs.tests_of(change)
        note = self.root / "noticed.json"
        note.unlink(missing_ok=True)
        with self.changed(change):
            files = sorted({test.partition("::")[0] for test in tests}) or [self.tests[0]]
            status = _waited_for(self._forked(files, Afresh(change.module, tests), note=note), runs.timeout(tests))
        if not status:
            return None
        return json.loads(note.read_text()) if note.exists() else "the import, or the time it took"

    @contextmanager
    def changed(self, change: Change) -> Iterator[bytes]:
        """Change a file for a while and yield what it was; by its time Python tells it from what it has compiled."""
        place = self.root / "src" / "fxdebug" / change.path
        text, stat = place.read_bytes(), place.stat()
        place.write_bytes(change.made_in(text))
        os.utime(place, (stat.st_mtime + 60, stat.st_mtime + 60))
        try:
            yield text
        finally:
            place.write_bytes(text)
            os.utime(place, (stat.st_mtime, stat.st_mtime))

    def _forked(
        self, tests: Sequence[str], plugin: Plugin, *, note: Path, before: Callable[[], object] = lambda: None
    ) -> int:
        """Run tests with a plug-in in a fork, in which torch is imported and nothing of ours; return its number."""
        child = os.fork()
        if child:
            return child
        code = 3
        try:
            os.setsid()
            source = str(self.root / "src")
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
            sys.path.insert(0, source)
            os.chdir(self.root)
            plugin.told = os.fdopen(os.dup(1), "w")
            with (self.root / "said.txt").open("w") as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
            before()
            sys.dont_write_bytecode = not plugin.compiles
            basetemp = tempfile.mkdtemp(dir=self.root.parent)
            code = int(
                pytest.main(["-x", "-q", "--assert=plain", f"--basetemp={basetemp}/of", *tests], plugins=[plugin])
            )
            result = plugin.result()
            if result is not None:
                note.write_text(json.dumps(result))
            code = plugin.status(code)
        finally:
            os._exit(code)


@dataclass(frozen=True)
class Runs:
    """What the tests of a room run where nothing is changed."""

    by_test: dict[str, list[str]]  # blocks by test, in the order of the tests
    seconds: dict[str, float]
    imported: list[str]  # blocks that ran before the first test
    libraries: list[str]  # modules of others that were imported by then
    longest: float = 60.0  # seconds that the tests of one change may take: further ones do not run

    def tests_of(self, change: Change) -> list[str]:
        """Return the tests that can notice a change: those of its file first, quick ones before slow ones."""

        at_import = change.block in (None, *self.imported)
        own, beginning = f"test_{change.path.stem}", f"{change.path.as_posix()}:"
        if at_import:
            running = [test for test, ran in self.by_test.items() if any(each.startswith(beginning) for each in ran)]
            others = list(self.by_test)
        else:
            running = [test for test, ran in self.by_test.items() if change.block in ran]
            sharing = {file for file in map(_file_of, running) if SHARES.search(Path(ROOT, file).read_text())}
            others = [test for test in self.by_test if _file_of(test) in sharing]
        first = {_file_of(test) for test in running}
        files: dict[str, list[str]] = {}
        for test in dict.fromkeys([*running, *others]):
            files.setdefault(_file_of(test), []).append(test)
        seconds = {file: sum(self.seconds[test] for test in files[file]) for file in files}
        chosen: list[str] = []
        left = self.longest
        for file in sorted(
            files, key=lambda file: (not Path(file).stem.startswith(own), file not in first, seconds[file])
        ):
            for test in sorted(files[file], key=self.seconds.__getitem__):
                left -= self.seconds[test]
                if left >= 0 or not chosen:
                    chosen.append(test)
        return chosen

    def timeout(self, tests: Sequence[str]) -> float:
        """Return how long tests may take, in seconds."""
        return 60 + 5 * sum(self.seconds[test] for test in tests)


SHARES = re.compile(r"scope=|@(functools\.)?(lru_)?cache\b")  # a test can use what another one has run


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _begin(block: list[ast.stmt]) -> tuple[int, int]:
    marks = [block[0], *getattr(block[0], "decorator_list", [])]
    return min((node.lineno, node.col_offset) for node in marks)


def _end(block: list[ast.stmt]) -> tuple[int, int]:
    return block[-1].end_lineno or 0, block[-1].end_col_offset or 0


def _tell(change: Change, test: str | None, file: TextIO) -> None:
    print(f"  {change}  {'not noticed' if test is None else f'noticed by {test}'}", file=file, flush=True)


class Plugin:
    """A plug-in of pytest that runs tests in its own way."""

    failed: str | None = None
    compiles = False  # keep what is compiled for later runs
    told: TextIO = sys.stdout  # what a person reads while tests run

    def result(self) -> object:
        """Return what is noted."""
        return self.failed

    def status(self, code: int) -> int:
        """Return the exit status, given that of pytest."""
        return code

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test that fails."""
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class Recorder(Plugin):
    """Notes what each test runs."""

    def __init__(self, started: Path) -> None:
        self.blocks: set[str] = set()
        self.runs = Runs({}, {}, [], [])
        self.started = started  # what started processes ran

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Set aside what ran before the first test."""
        self.runs.imported.extend(sorted(self.blocks))
        files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
        self.runs.libraries.extend(name for name, file in files.items() if file and "site-packages" in file)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what one test runs."""
        self.blocks.clear()
        self.started.unlink(missing_ok=True)
        begin = time.perf_counter()
        yield
        self.runs.seconds[item.nodeid] = time.perf_counter() - begin
        started = self.started.read_text().split("\n")[:-1] if self.started.exists() else []
        self.runs.by_test[item.nodeid] = sorted(self.blocks.union(started))

    def result(self) -> object:
        """Return what is noted."""
        return asdict(self.runs)


class Afresh(Plugin):
    """Runs the examples of a module, then some of the tests."""

    def __init__(self, module: str, tests: Sequence[str]) -> None:
        self.module, self.tests = module, tests

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests."""
        _run(session, self.module, self.tests)
        return True


def _run(session: pytest.Session, module: str, tests: Sequence[str]) -> None:
    """Run the examples of a module, unless its name is empty, and tests in their order, until something fails."""
    if module and doctest.testmod(importlib.import_module(module)).failed:
        session.testsfailed = 1
        return
    by_name = {item.nodeid: item for item in session.items}
    items = [by_name[test] for test in tests if test in by_name]
    for item, following in zip_longest(items, items[1:]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            break


class Warm(Plugin):
    """Makes changes one by one, each in a fork in which everything is imported and collected already."""

    compiles = True

    def __init__(self, tree: Copy, changes: Sequence[Change], runs: Runs, seconds: float) -> None:
        self.tree, self.changes, self.runs, self.end = tree, changes, runs, time.perf_counter() + seconds
        self.noticed: dict[int, str | None] = {}
        self.unsure: list[str] = []
        self.is_done = False

    def result(self) -> object:
        """Return what is noted."""
        return {"noticed": self.noticed, "unsure": self.unsure}

    def status(self, code: int) -> int:
        """Return the exit status, given that of pytest."""
        return 0 if self.is_done else code or 3

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Make the changes, then none, for the tests that noticed something."""
        for number, change in enumerate(self.changes):
            if time.perf_counter() > self.end:
                break
            with self.tree.changed(change) as before:
                status, failed = self._forked(session, self.runs.tests_of(change), change, before)
            if status != ANEW:
                self.noticed[number] = failed if status else None
                _tell(change, self.noticed[number], self.told)
        while True:
            tests = [test for test in self.runs.by_test if test in self.noticed.values()]
            status, failed = self._forked(session, tests)
            if not status:
                break
            assert failed in tests, failed
            self.unsure.append(failed)
            self.noticed = {number: test for number, test in self.noticed.items() if test != failed}
        self.is_done = True
        return True

    def _forked(
        self, session: pytest.Session, tests: Sequence[str], change: Change | None = None, before: bytes = b""
    ) -> tuple[int, str]:
        note = self.tree.root / "failed.txt"
        note.unlink(missing_ok=True)
        child = os.fork()
        if child:
            status = _waited_for(child, self.runs.timeout(tests))
            return status, note.read_text() if note.exists() else "its examples, or the time they took"
        code = 1
        try:
            os.setsid()
            sys.dont_write_bytecode = True
            module = "" if change is None else change.module
            is_old = change is not None and module in sys.modules
            at_import = change is not None and change.block in (None, *self.runs.imported)
            if is_old and (at_import or not put_into_functions(before, sys.modules[module])):
                code = ANEW
            else:
                _run(session, module, tests)
                code = 1 if session.testsfailed else 0
                note.write_text(self.failed or "its examples")
        except BaseException as error:
            note.write_text(f"{type(error).__name__} in its examples: {error}")
        finally:
            os._exit(code)


ANEW = 77  # exit status: the change shows only where the module is imported anew


def put_into_functions(before: bytes, module: ModuleType) -> bool:
    """Give functions the code that their file has now; return False where they cannot have it, or others hold it."""
    filename = module.__file__
    now = Path(filename or "").read_bytes()
    was = _codes_of(compile(before, filename, "exec", dont_inherit=True))
    will = _codes_of(compile(now, filename, "exec", dont_inherit=True))
    functions: dict[CodeType, list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__globals__ is vars(module):
            functions.setdefault(each.__code__, []).append(each)
    put = False
    for key, codes in was.items():
        others = will.get(key, [])
        if codes == others or not others:
            continue  # what has no counterpart lies in a function that is changed itself
        if len(others) != len(codes):
            return False
        for code, other in zip(codes, others):
            live = functions.get(code, [])
            if code == other or not live:
                continue
            nested = "<locals>" in code.co_qualname
            if (
                len({id(one.__code__) for one in live}) > 1
                or sys.getrefcount(live[0].__code__) > len(live) + nested + 2
            ):
                return False  # held elsewhere, too: in a table of codes
            for function in live:
                if len(function.__code__.co_freevars) != len(other.co_freevars):
                    return False
                function.__code__ = other
            put = put or not nested
    return put


def _codes_of(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    """Return the codes inside one, by name and line."""
    found: dict[tuple[str, int], list[CodeType]] = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found.setdefault((each.co_qualname, each.co_firstlineno), []).append(each)
            for key, inner in _codes_of(each).items():
                found.setdefault(key, []).extend(inner)
    return found


def _waited_for(child: int, timeout: float | None = None) -> int:
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
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of tests for one change (default: 60)")
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

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tree = Copy(Path(folder), tests)
        runs = tree.unchanged(options.room, options.longest)
        print(f"{len(runs.by_test)} tests take {sum(runs.seconds.values()):.0f} s", flush=True)
        noticed = tree.noticed_by(chosen, runs, options.seconds)
    for change, test in noticed.items():
        if test is None:
            print(f"  not noticed: {change}{'' if runs.tests_of(change) else ' (no test runs it)'}")
    caught = sum(test is not None for test in noticed.values())
    share = caught / max(len(noticed), 1)
    seconds = time.perf_counter() - begin
    print(f"{options.room}: {caught} of {len(noticed)} noticed ({share:.0%}) in {seconds:.0f} s, seed {seed}")
    return 0 if share >= BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""`make mutate` changes what runs and nothing else, one place at a time; `make test-of` finds the tests of a file."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = '''
"""A docstring with 3 < 4."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import path

LEAST = 2


def f(x: int = 1, *, deep: bool = False) -> "int | None":
    """Return 1 + 2."""
    if not x or (x > LEAST and
                 deep):
        return None
    return [x - 1 for é in "é" if x in (3, x)]
'''


def test_mutate_changes_what_runs_and_leaves_a_file_that_can_be_read(tool: ModuleType) -> None:
    changes = list(tool.changes_of(Path("a.py"), SOURCE))
    assert [f"{one.line} {' '.join(one.before.split())} → {one.after}" for one in changes] == [
        "8 2 → 3",
        "11 False → True",
        "11 1 → 2",
        "13 not x or (x > LEAST and deep) → (not x and (x > LEAST and deep))",
        "13 not x → x",
        "13 x > LEAST and deep → (x > LEAST or deep)",
        "13 x > LEAST → x >= LEAST",
        '16 return [x - 1 for é in "é" if x in (3, x)] → return None',
        "16 x - 1 → x + 1",
        "16 1 → 2",
        "16 x in (3, x) → x not in (3, x)",
        "16 3 → 4",
    ]
    for one in changes:
        text = SOURCE.encode()
        ast.parse(text[: one.begin] + one.after.encode() + text[one.end :])


def test_mutate_keeps_the_lines_of_what_follows_a_change(tool: ModuleType) -> None:
    for one in tool.changes_of(Path("a.py"), SOURCE):
        made = one.made_in(SOURCE.encode()).decode()
        assert ast.parse(made) and made.count("\n") == SOURCE.count("\n"), made


def test_mutate_names_the_innermost_block_that_a_change_lies_in(tool: ModuleType) -> None:
    blocks = {one.line: one.block for one in tool.changes_of(Path("a.py"), SOURCE)}
    assert blocks == {8: None, 11: None, 13: "a.py:13:4", 16: "a.py:13:4"}
    loop = "def f():\n    for x in y:\n        if x < 3:\n            continue\n        x + 1\n"
    assert [one.block for one in tool.changes_of(Path("a.py"), loop)] == ["a.py:3:8"] * 4


def test_mutate_changes_one_file_for_a_while(tool: ModuleType, tmp_path: Path) -> None:
    tree = tool.Copy.__new__(tool.Copy)
    tree.root = tmp_path
    place = tmp_path / "src" / "fxdebug" / "a.py"
    place.parent.mkdir(parents=True)
    place.write_text(SOURCE)
    time = place.stat().st_mtime
    seen: list[str] = []
    for change in tool.changes_of(Path("a.py"), SOURCE):
        with tree.changed(change) as before:
            seen.append(place.read_text())
            assert before.decode() == SOURCE and place.stat().st_mtime > time + 30
    assert len(set(seen)) == len(seen) == 12 and SOURCE not in seen
    assert place.read_text() == SOURCE and abs(place.stat().st_mtime - time) < 0.01


def test_mutate_runs_the_tests_that_run_a_changed_block_the_quick_ones_of_its_file_first(tool: ModuleType) -> None:
    change = next(one for one in tool.changes_of(Path("query/a.py"), SOURCE) if one.line == 13)
    by_test = {
        "tests/tools/test_begun.py::slow": [change.block],
        "tests/tools/test_begun.py::quick": ["other", change.block],
        "tests/tools/test_zoo.py::not_run": ["other"],
        "tests/tools/test_zoo.py::run": [change.block],
    }
    seconds = dict(zip(by_test, [3.0, 2.0, 0.5, 1.0]))
    slow, quick, not_run, run = by_test
    runs = tool.Runs(by_test, seconds, [], [])
    assert runs.tests_of(change) == [run, quick, slow]
    own = replace(change, path=Path("query/begun.py"))
    assert runs.tests_of(own) == [quick, slow, run]
    assert tool.Runs(by_test, seconds, [], [], longest=2.5).tests_of(change) == [run]
    at_import = tool.Runs(by_test, seconds, [change.block], [])
    assert at_import.tests_of(change) == [not_run, run, quick, slow]
    assert runs.timeout([slow, run]) == 80.0


FUNCTIONS = """
def outer(x):
    def inner():
        return [x + each for each in (1, 2)]
    return inner()


class Holder:
    @property
    def value(self):
        return outer(1) if 1 < 2 else None


def held():
    return 1


HELD = (held.__code__,)
"""


def test_mutate_puts_changed_code_into_functions_that_live_unless_a_table_holds_the_old(
    tool: ModuleType, tmp_path: Path
) -> None:
    place = tmp_path / "functions.py"
    seen: list[object] = []
    for number, change in enumerate(tool.changes_of(Path("functions.py"), FUNCTIONS)):
        place.write_text(FUNCTIONS)
        module = ModuleType(f"functions_{number}")
        module.__file__ = str(place)
        exec(compile(FUNCTIONS, place, "exec", dont_inherit=True), vars(module))
        place.write_bytes(change.made_in(FUNCTIONS.encode()))
        put = tool.put_into_functions(FUNCTIONS.encode(), module)
        seen.append((f"{change.before} → {change.after}", module.Holder().value if put else "not put"))
    assert seen == [
        ("return [x + each for each in (1, 2)] → return None", None),
        ("x + each → x - each", [0, -1]),
        ("1 → 2", [3, 3]),
        ("2 → 3", [2, 4]),
        ("return inner() → return None", None),
        ("return outer(1) if 1 < 2 else None → return None", None),
        ("1 < 2 → 1 <= 2", [2, 3]),
        ("1 → 2", None),
        ("2 → 3", [2, 3]),
        ("1 → 2", [3, 4]),
        ("1 → 2", "not put"),
    ]


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("query/find.py", ["tests/query/test_find.py"]),
        ("features/weights/run.py", ["tests/features/weights/test_weights.py"]),
        ("plugins/feature.py", ["tests/plugins/test_features.py"]),
    ],
)
def test_tests_of_a_file_are_those_with_its_name_that_import_it_or_of_its_folder(
    tool: ModuleType, file: str, tests: list[str]
) -> None:
    found = [path.relative_to(tool.ROOT).as_posix() for path in tool.tests_of(tool.PACKAGE / file)]
    assert set(tests) <= set(found)

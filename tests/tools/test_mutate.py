"""`make mutate` changes what runs and nothing else, one place at a time; `make test-of` finds the tests of a file."""

from __future__ import annotations

import ast
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


def test_mutate_makes_one_change_at_a_time_and_the_file_is_as_before(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tool.Copy.__new__(tool.Copy)
    tree.root, tree.tests = tmp_path, ["tests/query"]
    place = tmp_path / "src" / "fxdebug" / "a.py"
    place.parent.mkdir(parents=True)
    place.write_text(SOURCE)
    seen: list[str] = []

    def passes(timeout: float | None = None, module: str = "") -> bool:
        assert module == "fxdebug.a"
        seen.append(place.read_text())
        return "x >= LEAST" not in seen[-1]

    monkeypatch.setattr(tree, "passes", passes)
    noticed = [tree.notices(change, 1.0) for change in tool.changes_of(Path("a.py"), SOURCE)]
    assert noticed.count(True) == 1 and noticed[6]
    assert len(set(seen)) == len(seen) == len(noticed) and SOURCE not in seen
    assert place.read_text() == SOURCE


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

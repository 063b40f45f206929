"""What the comparison decides by a number stands in one short table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOM = Path(__file__).parents[2] / "src" / "fxdebug" / "comparison"
TABLE = ROOM / "thresholds.py"
# how long lists and sentences are, what is computed at a time, and how many weights layers of torch and experts have
NO_THRESHOLDS = {
    "MOST_NAMED", "SHOWN", "MOST_NOTES", "MANY_STEPS", "MOST_WEIGHED", "CHUNK", "MOST_DIFFERENCES",
    "WEIGHTS_OF_A_CELL", "MOST_FUSED", "_DEFAULT_FRACTION",
}  # fmt: skip


def numbers_in(file: Path) -> Iterator[str]:
    """The names of a module that are given a number."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(
            node.value, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.Dict)
        ):
            numbers = [x.value for x in ast.walk(node.value) if isinstance(x, ast.Constant)]
            if any(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
                yield from (x.id for x in ast.walk(node.targets[0]) if isinstance(x, ast.Name))


def test_the_thresholds_of_the_comparison_stand_in_one_table_of_at_most_25() -> None:
    names = list(numbers_in(TABLE))
    assert len(names) == len(set(names)) <= 25
    elsewhere = {name for file in ROOM.rglob("*.py") if file != TABLE for name in numbers_in(file)}
    assert elsewhere - NO_THRESHOLDS == set()

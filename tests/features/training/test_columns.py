"""Tables of records as columns: every cell comes back, what stays is written once, damage is told."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from fxdebug.data.values import Stats
from fxdebug.features.shared.records.gradients import TensorGradient
from fxdebug.features.shared.records.training import ResultStatistics
from fxdebug.features.training.saved.columns import Columns, rounded, with_rounded
from fxdebug.files.schema import Damaged

NUMBERS: list[Any] = [
    0.0, 1.5, -math.pi, math.nan, math.inf, -math.inf, 1e300, 1e-300, 3.39e38, 1e-40, None, 7, 1 << 60,
]  # fmt: skip


def row(place: int, number: Any) -> ResultStatistics:
    stats = Stats(6, number, 0.5, number, 3, 3.0, zeros=place)
    gradient = TensorGradient(0.1, stats, 2, "float32")
    has = (None if place % 5 == 4 else stats, None if place % 3 else gradient)
    return ResultStatistics(place, f"layers.{place}", 0, "Linear", None, "", (2, 3), *has)


def cells(of: Any) -> Any:
    """A record as lists, as JSON has it: what is not finite as text."""
    if isinstance(of, (ResultStatistics, Stats, TensorGradient)):
        return [cells(getattr(of, name)) for name in type(of).__slots__]
    if isinstance(of, (list, tuple)):
        return [cells(one) for one in of]
    return str(of) if isinstance(of, float) and not math.isfinite(of) else of


def test_every_cell_of_three_tables_comes_back() -> None:
    draw, write, read = random.Random(0), Columns(), Columns()
    for count in (40, 40, 3):
        rows = [row(place, draw.choice(NUMBERS)) for place in range(count)]
        content = json.loads(json.dumps(write.packed("results", rows), allow_nan=False))
        assert cells(read.unpacked("results", ResultStatistics, content, "line 2")) == cells(rows)


def test_what_stays_from_table_to_table_is_written_once() -> None:
    write = Columns()
    rows = [row(place, 0.25 * place) for place in range(40)]
    first, second = (write.packed("results", rows) for _ in range(2))
    assert {"path", "type", "shape", "stats.zeros"} <= first["columns"].keys()
    assert second == {"rows": 40, "columns": {}, "numbers": ""}


def test_a_number_is_rounded_to_four_digits_and_more_and_a_record_is_equal_after_it_was_read() -> None:
    for number in (0.1, -1234.5678, 9.9e-30, 2.5e37):
        assert abs(rounded(number) / number - 1) < 2e-5 and rounded(rounded(number)) == rounded(number)
    assert rounded(1e300) == 1e300 and rounded(0.0) == 0.0 and math.isnan(rounded(math.nan))
    short = with_rounded(row(3, 0.1))
    assert short.stats.mean == rounded(0.1) and (short.path, short.shape) == ("layers.3", (2, 3))
    table = Columns().packed("results", [short])
    assert table["columns"]["stats.mean"] == {"numbers": []}  # three bytes hold it


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"rows": -1}, "line 2.rows is -1"),
        ({"rows": 41}, "columns has no position of 41 rows|is a list of 40|3 for each"),
        ({"columns": []}, "line 2.columns is a list of 0, not an object"),
        ({"numbers": "abc"}, "line 2.numbers is 'abc', not packed bytes"),
        ({"numbers": ""}, "line 2.numbers has 0 bytes"),
        ({"columns": {"position": [1]}}, "line 2.position is a list of 1, not a list of 40|3 for each"),
        ({"columns": {"path": {"of": [], "at": ""}}}, "line 2.path.of is a list of 0, not a list with values"),
        ({"columns": {"path": {"packed": "abc", "bytes": 9}}}, "line 2.path is 'abc', not packed bytes"),
    ],
)
def test_damage_is_told_with_its_place(damage: dict[str, Any], told: str) -> None:
    content = Columns().packed("results", [row(place, 0.1 * place) for place in range(40)]) | damage
    if "columns" in damage:
        content["numbers"] = ""
    with pytest.raises(Damaged, match=told):
        Columns().unpacked("results", ResultStatistics, content, "line 2")

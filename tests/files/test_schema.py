"""Readers from type hints: every cell is checked, and the message names its place and what it should be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fxdebug.files import schema
from fxdebug.files.schema import (
    LARGEST,
    Damaged,
    columns_of,
    defaults_of,
    integers,
    reader_of,
    reals,
    record,
    records_of,
    shown,
    table,
    texts,
)


@dataclass(frozen=True)
class Point:
    x: int
    name: str | None = None
    sizes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("hint", "cell", "read"),
    [
        (int, 3, 3),
        (str, "a", "a"),
        (bool, True, True),
        (float, 2, 2),
        (float | None, None, None),
        (Literal["a", "b"], "b", "b"),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[Point, ...], [[1], [2, "n", [3]]], (Point(1), Point(2, "n", (3,)))),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (Mapping[str, Any], {"a": [1, None, "x"]}, {"a": [1, None, "x"]}),
    ],
)
def test_a_cell_of_the_stated_type_is_read(hint: Any, cell: Any, read: Any) -> None:
    assert list(reader_of(hint, {})([cell, cell], str)) == [read, read]


@pytest.mark.parametrize(
    ("hint", "cell", "told"),
    [
        (int, True, "cell is true, not an integer"),
        (int, 1.0, "cell is 1.0, not an integer"),
        (int, 1 << 64, "cell is an integer of 65 bits, not an integer of 64 bits"),
        (str, None, "cell is null, not a text"),
        (str | None, 3, "cell is 3, not a text"),
        (float, "1.5", "cell is '1.5', not an integer or a number"),
        (float, float("inf"), "cell is inf, not a number of usual size"),
        (float, 10**400, "cell is an integer of 1329 bits, not a number of usual size"),
        (Literal["a", "b"], "c", "cell is 'c', not one of 'a', 'b'"),
        (tuple[int, ...], {"a": 1}, "cell is an object of 1, not a list"),
        (tuple[int, ...], [1, "2"], "cell[1] is '2', not an integer"),
        (tuple[int, str], [1], "cell is a list of 1, not a list of 2 ([0], [1])"),
        (tuple[Point, ...], [[1], [2, "n", [3, None]]], "cell[1].sizes[1] is null, not an integer"),
        (Mapping[str, int], {"a": 1, "b": []}, "cell['b'] is a list of 0, not an integer"),
        (Mapping[str, Any], {"a": {}}, "cell['a'] is an object of 0, not a text, a number"),
    ],
)
def test_another_type_is_damage_at_a_named_place(hint: Any, cell: Any, told: str) -> None:
    good = {int: 1, str: "a"}.get(hint)
    cells = [cell] if good is None else [good, cell]
    with pytest.raises(Damaged) as raised:
        reader_of(hint, {})(cells, lambda i: "cell" if i == len(cells) - 1 else "another")
    assert str(raised.value).startswith(told)


def test_a_table_fills_in_defaults_and_refuses_what_it_does_not_know() -> None:
    readers, defaults = columns_of(Point, {}), defaults_of(Point)

    def points(columns: Any, rows: Any) -> list[Point]:
        content = {"points": {"columns": columns, "rows": rows}}
        return [Point(*cells) for cells in zip(*table(content, "points", readers, defaults).values())]

    assert points(["x"], [[1], [2]]) == [Point(1), Point(2)]
    assert points(["sizes", "x"], [[[5], 1]]) == [Point(1, None, (5,))]
    assert points([], []) == []
    for columns, rows, told in (
        (["name"], [["a"]], "points has no column 'x'"),
        (["x", "y"], [[1, 2]], "points.columns has 'y'"),
        (["x", "x"], [[1, 2]], "points.columns has 'x', which is no field of it, or stands twice"),
        (["x"], [[1, 2]], "a row of points has 2 fields instead of 1: points[0]"),
        (["x"], [[1], 2], "points[1] is 2, not a list"),
        (["x"], {}, "points.rows is an object of 0, not a list"),
        (3, [], "points.columns is 3, not a list"),
    ):
        with pytest.raises(Damaged) as raised:
            points(columns, rows)
        assert str(raised.value).startswith(told)
    with pytest.raises(Damaged, match="points is missing"):
        table({}, "points", readers, defaults)


@pytest.mark.parametrize(("low", "high", "cell"), [(0, 3, 0), (0, 3, 2), (-LARGEST, LARGEST, LARGEST - 1)])
def test_integers_are_read_from_the_lowest_up_to_but_not_the_highest(low: int, high: int, cell: int) -> None:
    assert integers(low, high)([cell], str) == [cell]


@pytest.mark.parametrize(
    ("low", "high", "cell", "told"),
    [
        (0, 3, 3, "a is 3, not an integer from 0 to 2"),
        (0, 3, -1, "a is -1, not an integer from 0 to 2"),
        (0, LARGEST, -1, "a is -1, not an integer of 64 bits"),
        (0, LARGEST, LARGEST, "a is an integer of 65 bits, not an integer of 64 bits"),
    ],
)
def test_integers_outside_are_damage(low: int, high: int, cell: int, told: str) -> None:
    with pytest.raises(Damaged, match=f"^{told}$"):
        integers(low, high)([low, cell], lambda i: "xa"[i])


def test_numbers_that_are_not_finite_are_texts() -> None:
    assert reals(["inf", "-inf", 3, 0.5], str) == [math.inf, -math.inf, 3.0, 0.5]
    assert math.isnan(reals(["nan"], str)[0])
    for cell in ("NaN", None, 10**400, True):
        with pytest.raises(Damaged, match="not a number, or nan, inf or -inf as a text"):
            reals([cell], str)


def test_what_is_wrong_is_shown_in_short() -> None:
    assert shown("x" * 40) == repr("x" * 40) and shown("x" * 41) == "'" + "x" * 40 + "…'"
    assert (shown(LARGEST - 1), shown(-LARGEST)) == (str(LARGEST - 1), "an integer of 65 bits")
    assert (shown(None), shown(False), shown({"a": 1})) == ("null", "false", "an object of 1")


def test_a_row_may_end_where_the_rest_has_defaults() -> None:
    read = schema.rows(lambda *cells: cells, {"x": texts, "y": texts, "z": texts}, {"y": "b", "z": "c"})
    assert read([["a"], ["a", "B"], ["a", "B", "C"]], str) == [("a", "b", "c"), ("a", "B", "c"), ("a", "B", "C")]
    for place, cells in ((0, [[], ["a"]]), (1, [["a"], ["a", "b", "c", "d"]])):
        with pytest.raises(Damaged, match=rf"^{place} is a list of {len(cells[place])}, not a list of 3 \(x, y, z\)"):
            read(cells, str)


def test_entries_of_an_object_are_there_or_have_defaults() -> None:
    assert records_of({"a": texts})([{"a": "x", "more": 1}], str) == [("x",)]
    with pytest.raises(Damaged, match=r"^1\.a is missing$"):
        records_of({"a": texts})([{"a": "x"}, {}], str)
    assert record({"n": {"a": "x"}}, "n", {"a": texts, "b": texts}, {"b": None}) == {"a": "x", "b": None}
    assert record({"a": "x"}, "", {"a": texts}) == {"a": "x"}
    for content, told in (({}, "n is missing"), ({"n": 3}, "n is 3, not an object"), ({"n": {}}, "n.a is missing")):
        with pytest.raises(Damaged, match=f"^{told}$"):
            record(content, "n", {"a": texts})


def test_a_hint_that_has_no_reader_is_an_error_of_ours() -> None:
    assert reader_of(int | float, {})([1, 0.5], str) == [1, 0.5]
    for hint in (int | str, set, complex):
        with pytest.raises(TypeError, match="no reader for"):
            reader_of(hint, {})

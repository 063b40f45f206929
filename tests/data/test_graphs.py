"""Arguments and assumptions of graphs read as Python writes them."""

from __future__ import annotations

import pytest

from fxdebug.data.graphs import Guard, Operand, Ref, text_of
from fxdebug.data.values import Group

X = Ref("x")


@pytest.mark.parametrize(
    ("kind", "name", "items", "keys", "text"),
    [
        ("sequence", "list", (), None, "[]"),
        ("sequence", "list", (X, 2), None, "[x, 2]"),
        ("sequence", "Pair", (1, X), None, "Pair(1, x)"),
        ("mapping", "dict", (X, None), ("a", 1), "{'a': x, 1: None}"),
        ("mapping", "dict", (), (), "{}"),
        ("sequence", "slice", (None, X, None), None, ":x"),
        ("sequence", "slice", (1, X, 2), None, "1:x:2"),
        ("sequence", "slice", (None, None, 2), None, "::2"),
        ("sequence", "slice", (1, None, None), None, "1:"),
    ],
)
def test_a_group_of_arguments_is_written_as_in_python(
    kind: str, name: str, items: tuple[Operand, ...], keys: tuple[object, ...] | None, text: str
) -> None:
    assert text_of(Group(kind, name, items, keys)) == text  # type: ignore[arg-type]


def test_an_assumption_says_what_was_asked_answered_and_where() -> None:
    assert str(Guard("x.shape[0]", "3")) == "x.shape[0] is 3"
    assert str(Guard("x.shape[0]", "3", "m.py:4")) == "x.shape[0] is 3 (m.py:4)"

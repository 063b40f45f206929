"""Options of a drawing: an unknown one, or an unknown word, is an error that names those there are."""

from __future__ import annotations

import pytest

from fxdebug.errors import UsageError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"color": "meen"},
            "color='meen': use kind, status, none, or a measure of this run: count, mean, .* Did you mean 'mean'",
        ),
        ({"rankdir": "UP"}, r"rankdir='UP': use TB \(downwards\) or LR"),
        ({"layout": "neato"}, r"layout='neato': use page \(as in the page of a run\) or dot"),
        ({"theme": "blue"}, "theme='blue': use light or dark"),
        ({"layout": "page", "rankdir": "LR"}, "rankdir='LR' is drawn by Graphviz: leave layout='page' out"),
        ({"theme": "dark", "everything": True}, "Graphviz draws no dark pictures: leave everything=True out"),
        ({"theme": "dark", "layout": "dot"}, "Graphviz draws no dark pictures: leave layout=dot out"),
        ({"deep": 2}, "has no option 'deep'; it has depth, fold"),
    ],
)
def test_an_option_that_cannot_be_meant_is_an_error(tower, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        tower.export(tmp_path / "g.svg", **options)

"""The legend tells each colour and each arrow that is drawn, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fxdebug import Trace, fx_debug
from fxdebug.exports.drawing.colors import CARRIED, Colors
from fxdebug.exports.drawing.drawing import Arrow, ArrowKind, Drawing
from fxdebug.exports.drawing.marks import Marks
from fxdebug.exports.drawing.meanings import meanings_of

ARROWS: dict[ArrowKind, list[tuple[str, str]]] = {
    "data": [],
    "memory": [("", "dashed: through memory or an object")],
    "carried": [(CARRIED, "arrow: to the next turn of a loop")],
    "order": [("", "dotted: ran next, its input is not known")],
}


@pytest.fixture
def trace() -> Trace:
    return fx_debug(nn.Linear(2, 2), torch.ones(1, 2))


def drawing_of(*kinds: ArrowKind) -> Drawing:
    return Drawing(None, {}, [Arrow("a", "b", None, kind) for kind in kinds], None)


@pytest.mark.parametrize("kind", ARROWS)
def test_an_arrow_that_is_no_plain_one_has_its_meaning(kind: ArrowKind, trace: Trace) -> None:
    drawing = drawing_of("data", kind, kind)
    assert meanings_of(drawing, Colors(trace, drawing, "status")) == ARROWS[kind]


def test_meanings_of_marks_stand_before_those_of_arrows(trace: Trace) -> None:
    drawing = drawing_of("memory", "order", "carried")
    marks = Marks({}, {}, [("#fff", "adds error")])
    told = meanings_of(drawing, Colors(trace, drawing, "none"), marks)
    assert told == [("#fff", "adds error"), *ARROWS["memory"], *ARROWS["carried"], *ARROWS["order"]]

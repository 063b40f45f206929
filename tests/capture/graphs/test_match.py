"""A pattern fits a tape that says the same throughout, and none where anything was changed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.graphs.match import Match, match_tape
from fxdebug.capture.graphs.template import GraphTemplate
from fxdebug.capture.graphs.verify import GraphVerifier
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.encoding import Struct
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[GraphTemplate, CallTape, ValueTable]]:
    """Every pattern that fitted a body, with it."""
    found: list[tuple[GraphTemplate, CallTape, ValueTable]] = []

    def noted(pattern: GraphTemplate, body: CallTape, values: ValueTable) -> Match | None:
        matched = match_tape(pattern, body, values)
        if matched is not None:
            found.append((pattern, body, values))
        return matched

    monkeypatch.setattr("fxdebug.capture.graphs.verify.match_tape", noted)
    return found


def _others(code):
    """Codes that are not this one, one thing changed in each."""
    kind = type(code)
    if kind is TensorId:
        yield from (TensorId(code + 1), int(code), None, (code,))
    elif kind is bool:
        yield from (not code, int(code), None)
    elif kind is int:
        yield from (code + 1, float(code), TensorId(code), str(code))
    elif kind is float:
        yield from (2 * code if math.isfinite(code) else 1.0, -code, str(code))
    elif code is None:
        yield from (0, False, ())
    elif kind is str:
        yield from (code + "x", None)
    elif kind in (tuple, list):
        yield from (kind((*code, None)), list(code) if kind is tuple else tuple(code))
        for place, item in enumerate(code):
            yield from (kind((*code[:place], other, *code[place + 1 :])) for other in _others(item))
    elif kind is dict:
        yield {**code, "another": 1}
        yield from ({**code, name: other} for name, item in code.items() for other in _others(item))
    elif kind is Struct:
        yield None
    else:
        yield object()


def _changed(entry: TapeEntry):
    yield from (entry._replace(args=other) for other in _others(entry.args))
    yield from (entry._replace(kwargs=other) for other in _others(entry.kwargs))
    yield from (entry._replace(out=other) for other in _others(entry.out))
    yield entry._replace(what=torch.relu if entry.what is not torch.relu else torch.tanh)
    yield entry._replace(what=nn.Linear(1, 1))
    yield entry._replace(context=(not entry.context[0], False, None))
    yield entry._replace(context=(entry.context[0], False, (("cpu", torch.bfloat16),)))


def _is_told_apart(found: Match | None, known: Match) -> bool:
    """Does a tape that was changed not fit, or with another tensor in a slot that was free?"""
    return found is None or found.tensor_ids != known.tensor_ids


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 8))
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x, *, mask=None, bias=0.5):
        b, t, d = x.shape
        y = self.norm(x).view(b, t * d // 2, 2).reshape(b, t, d)
        y = torch.cat([y, y], dim=-1)[..., :d] * self.scale + bias
        if mask is not None:
            y = y.masked_fill(mask, float("-inf")).softmax(dim=-1)
        first, _ = self.inner(y).chunk(2, dim=1)
        return x + y, (first, None)


@pytest.mark.parametrize("mask", [False, True])
def test_a_tape_that_differs_in_anything_does_not_fit(mask, fitted):
    forget_templates()
    given = {"mask": torch.eye(8).bool()[:4]} if mask else {}
    model, x = Block(), torch.randn(2, 4, 8)
    with torch.no_grad():
        for _ in range(2):
            assert fx_debug(model, (x,), given).call_graphs is not None
    assert {type(body.module) for _, body, _ in fitted} >= {Block, nn.Linear, nn.LayerNorm, nn.GELU}
    tried = 0
    for pattern, body, values in fitted:
        known = match_tape(pattern, body, values)
        assert known is not None

        whole = body.entries
        for place, entry in enumerate(whole):
            for other in _changed(entry):
                body.entries = [*whole[:place], other, *whole[place + 1 :]]
                assert _is_told_apart(match_tape(pattern, body, values), known), (type(body.module), entry, other)
                tried += 1
        for entries in (whole[1:], whole[:-1], [*whole, whole[0]] if whole else [None]):
            body.entries = entries
            assert match_tape(pattern, body, values) is None or entries == whole
        body.entries = whole
        for name in ("args", "kwargs", "out"):
            had = getattr(body, name)
            for other in _others(had):
                setattr(body, name, other)
                assert _is_told_apart(match_tape(pattern, body, values), known), (type(body.module), name, other)
                tried += 1
            setattr(body, name, had)
        again = match_tape(pattern, body, values)
        assert again is not None and again.tensor_ids == known.tensor_ids
    assert tried > 400


class LastSize(nn.Module):
    def forward(self, x):
        y = x * 2
        return y.reshape(y.shape[-1], -1)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_size_of_a_dimension_that_is_not_there_is_no_match(runs):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = LastSize(), LastSize(), LastSize()

        def forward(self, x):
            return self.first(x), self.second(x[0]), self.third(x[0, 0])

    forget_templates()
    for _ in range(runs):
        trace = fx_debug(Model(), torch.ones(2, 3, 4))
        assert [call.status for call in trace.calls] == ["verified"] * 4
        assert trace.calls[2].fx(torch.ones(5, 2)).shape == (2, 5)


class Deep(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        for _ in range(300):
            n = n + 1
        return x.reshape(n - 300, -1)


class Doubled(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        for _ in range(40):
            n = (n + n) // 2
        return x.reshape(n, -1)


@pytest.mark.parametrize("kind", [Deep, Doubled])
def test_sizes_that_are_computed_in_many_steps_fit_in_later_runs_too(kind):
    forget_templates()
    model = nn.Sequential(*[kind() for _ in range(15)])
    for _ in range(4):
        trace = fx_debug(model, torch.randn(6, 3))
        assert [call.status for call in trace.calls] == ["verified"] * 16


class Name(str):
    pass


class ByName(nn.Module):
    def forward(self, **given):
        (x,) = given.values()
        return x * 2


def test_a_keyword_of_a_class_of_its_own_does_not_mislead():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = ByName(), ByName()

        def forward(self, x):
            return self.first(k=x), self.second(**{Name("k"): x})

    forget_templates()
    for _ in range(2):
        trace = fx_debug(Model(), torch.ones(2))
        assert [call.status for call in trace.calls] == ["verified"] * 3
        for call in trace.calls:
            assert call.fx is not None


def test_a_graph_that_cannot_be_explained_leaves_the_others(monkeypatch):
    original = GraphVerifier._verify

    def verify_one(verifier, tape):
        if type(tape.module) is nn.ReLU:
            raise KeyError("of ours")
        return original(verifier, tape)

    monkeypatch.setattr(GraphVerifier, "_verify", verify_one)
    trace = fx_debug(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh()), torch.ones(1, 2))
    assert [call.status for call in trace.calls] == ["verified", "verified", "opaque", "verified"]
    assert trace.calls[2].reason == "it could not be explained (KeyError: 'of ours')"

"""What holds for the layout of every run, asked in the embedded engine by ``web/test/invariants.ts``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from py_mini_racer import MiniRacer

import fxdebug
from fxdebug.exports.page.bodies import bodies_of, body_columns
from fxdebug.exports.page.pack import Column, Texts
from fxdebug.exports.picture.write import svg_text
from support.sweep import sampled, whole
from zoo import zoo_sample

SLOW = frozenset({"scale/layers-500", "scale/wide-2000", "scale/calls-3000"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "build" in metafunc.fixturenames:
        entries = {name: build for name, build in zoo_sample.entries(whole()) if whole() or name not in SLOW}
        architectures = sampled([name for name in entries if name.startswith("hf/")], 3)
        plain = sampled([name for name in entries if not name.startswith("hf/")], 24)
        chosen = list(entries) if whole() else [*plain, *architectures]
        metafunc.parametrize("build", [entries[name] for name in chosen], ids=chosen)


@pytest.fixture(scope="module")
def engine() -> MiniRacer:
    engine = MiniRacer()
    engine.eval((Path(__file__).parent / "invariants.js").read_text(encoding="utf-8"))
    return engine


def test_no_line_passes_through_a_box_and_opening_moves_nothing_above(engine, build):
    """Nor do boxes overlap, lines run upwards or beside their items, or names stand out of their boxes."""
    assert broken(engine, traced(build)) == []


def test_no_line_or_word_of_a_picture_lies_on_another_and_it_fits_a_page(engine, build):
    found = json.loads(engine.call("invariants.picture", svg_text(traced(build))))
    assert found == []


def traced(build: Callable[[], tuple[torch.nn.Module, Any]]) -> fxdebug.Trace:
    """Run a model, also one that raises."""
    model, inputs = build()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return fxdebug.fx_debug(model, inputs)
        except Exception:
            failed = fxdebug.last_failed()
            assert failed is not None
            return failed


def broken(engine: MiniRacer, trace: fxdebug.Trace) -> list[str]:
    texts = Texts()
    columns = body_columns(bodies_of(trace, texts))
    lists: dict[str, Any] = {k: v.numbers.tolist() if isinstance(v, Column) else v for k, v in columns.items()}
    found: list[str] = json.loads(engine.call("invariants.check", json.dumps({**lists, "texts": texts.listed})))
    return found

"""With tracing, everything is bit for bit as without it: the promise on which all others rest.

``make sweep`` holds the whole zoo to it, ``make test`` all of it but most of the architectures of transformers.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fxdebug
from support.outcome import assert_same
from support.sweep import sampled, whole
from zoo import zoo, zoo_sample

pytestmark = pytest.mark.usefixtures("no_remarks_on_python_3_13_0")
SLOW = frozenset(  # `scale/calls-3000` and other architectures stand for them
    {"scale/layers-500", "scale/wide-2000", "hf/longformer/LongformerForMaskedLM"}
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "build" in metafunc.fixturenames:
        entries = dict(zoo_sample.entries(whole=True))
        few = {*sampled([name for name in entries if name.startswith("hf/")], 16), *dict(zoo_sample.entries(whole()))}
        chosen = [(name, entries[name]) for name in entries if name in few and (whole() or name not in SLOW)]
        metafunc.parametrize("build", [build for _, build in chosen], ids=[name for name, _ in chosen])


def traced(model: Any, inputs: Any) -> Any:
    return fxdebug.fx_debug(model, inputs).output


def test_a_traced_run_equals_the_untraced_run_bit_for_bit(build: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        assert_same(build, traced, grad=False)


def test_gradients_after_a_traced_run_equal_those_of_an_untraced_run(build: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        assert_same(build, traced, grad=True)


RAISING = list(zoo.raising())


@pytest.mark.parametrize("failing", [build for _, build in RAISING], ids=[name for name, _ in RAISING])
def test_a_model_that_raises_an_error_raises_the_same_error_when_traced(failing: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        assert_same(zoo_sample.quietly(failing), traced, grad=False)

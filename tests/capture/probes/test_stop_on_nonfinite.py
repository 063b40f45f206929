"""``stop_on_nonfinite``: a run ends at the operation that made the first NaN or infinity."""

from __future__ import annotations

import fnmatch
import math
import warnings

import pytest
import torch

import fxdebug
from fxdebug import fx_debug
from support import numerics_cases
from support.bodies import Body, Runs
from support.healthy import NOT_HEALTHY
from support.numerics_cases import CASES, bert, gpt2, mlp, planted
from zoo import zoo_sample


def tensors_of(output):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_that_is_to_stop_does_so_at_the_planted_producer(case):
    model, inputs = case.build()
    with pytest.raises(fxdebug.NonFinite) as caught:
        fx_debug(model, inputs, stop_on_nonfinite=True)
    error = caught.value
    first = "layers.0" if case.kind == "input" else case.path  # an input is told of where it is first used
    assert error.kind == case.kind and fnmatch.fnmatchcase(error.path, first)
    if case.kind not in ("weight", "input"):
        assert error.op == case.op
    assert fxdebug.last_failed().error.type == "NonFinite"


def test_a_stopped_run_is_saved_and_leaves_nothing_on_the_model(tmp_path):
    model, inputs = planted("gpt2", numerics_cases.exp_overflows)()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    with pytest.raises(fxdebug.NonFinite) as caught:
        fx_debug(model, inputs, stop_on_nonfinite=True, save=tmp_path)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    error = caught.value
    assert (error.kind, error.path, error.call, error.op) == (
        "inf", "transformer.h.1.mlp", "transformer.h.1.mlp#0", "exp",
    )  # fmt: skip
    told = str(error)
    assert "numerics_cases.py:" in told and "beyond the largest float32" in told and "last_failed" in told
    assert "given float32[1, 6, 16]" in told and "+Inf" in told
    loaded = fxdebug.load(tmp_path)
    assert loaded.error.type == "NonFinite" and not loaded.find("transformer.h.2.ln_1")
    assert loaded.check()[0].op == "exp"


def test_without_graphs_a_run_stops_at_the_call():
    for host, (_, place) in numerics_cases.HOSTS.items():
        model, inputs = planted(host, numerics_cases.log_of_negative)()
        with pytest.raises(fxdebug.NonFinite) as caught:
            fx_debug(model, inputs, stop_on_nonfinite=True, graph=False)
        assert (caught.value.path, caught.value.op) == (place, "Planted")
        assert fxdebug.last_failed().find(place)[0].error.here


def test_a_model_that_catches_it_is_stopped_all_the_same():
    def stubborn(x):
        try:
            return torch.sqrt(x)
        except Exception:
            return x

    with pytest.raises(fxdebug.NonFinite):
        fx_debug(Body(stubborn), -torch.ones(2), stop_on_nonfinite=True)


def test_a_run_with_nothing_to_stop_for_gives_the_same_result_and_trace():
    for build in (mlp, gpt2, bert):
        model, inputs = build()
        plain, watched = fx_debug(model, inputs), fx_debug(model, inputs, stop_on_nonfinite=True)
        assert [call.id for call in plain.calls] == [call.id for call in watched.calls]
        assert [(v.label, v.stats.max, v.stats.zeros) for v in plain.values if v.stats] == [
            (v.label, v.stats.max, v.stats.zeros) for v in watched.values if v.stats
        ]  # means are summed in another order where tensors are measured one by one
        assert [(call.status, call.code) for call in plain.calls] == [(c.status, c.code) for c in watched.calls]
        assert all(map(torch.equal, tensors_of(plain.output), tensors_of(watched.output)))


def test_healthy_models_are_not_stopped():
    for name, build in zoo_sample.entries(False):
        if name.split("/")[0] in ("flow", "tensors", "modes") and name not in NOT_HEALTHY:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fx_debug(*build(), stop_on_nonfinite=True)


CURED = {
    "zeros like it": lambda x: (y := x / x, torch.where(x == 0, torch.zeros_like(y), y))[1],
    "a new zero": lambda x: (y := x / x, torch.where(x == 0, y.new_zeros(()), y))[1],
    "sevens like it": lambda x: (y := x / x, torch.where(x == 0, torch.full_like(y, 7), y))[1],
    "the root": lambda x: torch.where(x >= 1, (x - 1).sqrt(), 0.0),
    "the power": lambda x: torch.where(x >= 1, (x - 1) ** 0.5, 0.0),
    "the logarithm": lambda x: torch.where(x > 1, (x - 1).log(), 0.0),
    "nan_to_num": lambda x: (x * 9).acos().nan_to_num(),
    "written over": lambda x: (y := (x - 1).sqrt(), y.__setitem__(y.isnan(), 0.0), y.exp())[2],
    "nanmean": lambda x: x.masked_fill(x > 1, math.nan).nanmean(),
}


@pytest.mark.parametrize("name", CURED)
def test_what_is_put_right_at_once_is_advice_and_stops_no_run(name):
    x = torch.tensor([0.0, 1.0, 2.0])
    found = fx_debug(Runs(CURED[name]), x).check()
    assert found.healthy and [finding.severity for finding in found] == ["advice"]
    fx_debug(Runs(CURED[name]), x, stop_on_nonfinite=True)


@pytest.mark.parametrize(
    ("op", "body"),
    [
        ("sqrt", lambda x: (x - 1).sqrt() * 2),
        ("log", lambda x: (x - 1).log()),
        ("exp", lambda x: (x * 1000).exp() + 1),
        ("masked_fill", lambda x: x.masked_fill(x > 1, math.nan).mean()),
    ],
)
def test_what_is_not_put_right_stops_the_run_by_the_name_of_who_made_it(op, body):
    with pytest.raises(fxdebug.NonFinite) as stopped:
        fx_debug(Runs(body), torch.tensor([0.0, 1.0, 2.0]), stop_on_nonfinite=True)
    assert stopped.value.op == op

"""``fxdebug.check``: every rule fires on its fault, none on a healthy model; settings, coverage, state put back."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.analyses.rules.table import ANALYSES, RULES
from fxdebug.errors import UsageError
from support import sick_models, sweep
from support.clocks import CountedClock, profiled_by
from support.same import difference
from support.sick_models import BY_RULE, IN_FOLDERS, changed, mlp, normal, of_sum
from support.sick_state import OF_TWO
from support.watched import randomness, state_of
from zoo.zoo_sample import entries


def told(found: Any, least: str = "advice") -> list[tuple[str, str]]:
    """(rule with its analysis, path) of the findings, without advice if ``least`` is a warning."""
    return [
        (f"{finding.analysis.partition(',')[0]}.{finding.rule}", finding.path)
        for finding in found
        if least == "advice" or finding.severity != "advice"
    ]


@contextmanager
def threads(count: int) -> Iterator[None]:
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(1)


AROUND: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "profile.threads": lambda: threads(64),
    "profile.anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),  # type: ignore[no-untyped-call]
}


# Rules --------------------------------------------------------------------------------------------


LOOPS = [rule for rule in IN_FOLDERS if rule.startswith("training.")]  # half a second each; features/training has them
PLANTED = [rule for rule in RULES if rule not in OF_TWO and (rule not in LOOPS or rule in sweep.sampled(LOOPS, 3))]


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_fault_is_found_by_the_name_of_its_rule(rule: str, tmp_path: Path) -> None:
    model, options = IN_FOLDERS[rule](tmp_path) if rule in IN_FOLDERS else BY_RULE[rule]()
    with profiled_by(CountedClock()), AROUND.get(rule, nullcontext)():
        found = fxdebug.check(model, **options)
        without = fxdebug.check(model, **options, off=[rule])
    assert rule in [name for name, _ in told(found)]
    assert rule not in [name for name, _ in told(without)]


@pytest.mark.parametrize("rule", OF_TWO)
def test_a_planted_change_is_found_by_the_name_of_its_rule(rule: str, tmp_path: Path) -> None:
    a, b = OF_TWO[rule]()
    if isinstance(a, dict):
        torch.save(a, tmp_path / "a.pt")
        a = tmp_path / "a.pt"
    analysis = rule.partition(".")[0]
    report = (fxdebug.weights if analysis == "weights" else fxdebug.compare_gradients)(a, b)
    assert [f"{analysis}.{finding.rule}" for finding in report.findings] == [rule]


def test_a_finding_is_of_a_rule_in_the_table_and_at_most_as_grave(tmp_path: Path) -> None:
    unknown, grave = set(), set()
    order = ["advice", "warning", "error"]
    for rule in BY_RULE:
        if rule.startswith(("profile", "attention")):
            continue
        model, options = BY_RULE[rule]()
        for finding in fxdebug.check(model, **options):
            known = RULES.get(f"{finding.analysis.partition(',')[0]}.{finding.rule}")
            if known is None:
                unknown.add(f"{finding.analysis}.{finding.rule}")
            elif order.index(finding.severity) > order.index(known.severity):
                grave.add(known.id)
    assert (unknown, grave) == (set(), set())


# Known false alarms, on weights that were not drawn: a table of sinusoids, logarithms of decay rates.
NOT_DRAWN = {
    "hf/whisper/": {"weights.initialisation"},
    "hf/mamba/": {"weights.initialisation", "weights.unread input"},
}
GROUPS = ("hf/", "layers/", "call/", "flow/", "values/", "modes/", "hooks/", "names/")
ALWAYS = (
    "hf/", "layers/lstm", "layers/gru", "layers/transformer", "layers/multihead", "layers/embedding", "layers/conv",
    "layers/dropout", "layers/batchnorm", "call/several", "call/shared", "call/kwargs", "call/vmap",
)  # fmt: skip
SLOW = () if sweep.whole() else ("hf/longformer/",)  # five seconds
ZOO = {name: build for name, build in entries(False) if name.startswith(GROUPS) and not name.startswith(SLOW)}


@pytest.mark.parametrize("name", sweep.sampled(ZOO, 1000, ALWAYS))
def test_a_healthy_model_has_nothing_but_advice(name: str) -> None:
    model, inputs = ZOO[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fxdebug.check(model, inputs, fxdebug.api.mean_of_output)
    expected = next((rules for start, rules in NOT_DRAWN.items() if name.startswith(start)), set())
    assert {rule for rule, _ in told(found, "warning")} - expected == set()


def test_there_are_twenty_healthy_models_in_the_sample() -> None:
    assert len(sweep.sampled(ZOO, 1000, ALWAYS)) >= 20


def test_a_learning_rate_a_hundred_times_too_high_is_found_and_the_usual_one_is_none() -> None:
    for rate, expected in ((5e-4, []), (5e-2, ["gradients.update too large"])):
        model, options = sick_models.with_rate(rate)
        assert [rule for rule, _ in told(fxdebug.check(model, **options), "warning")] == expected


# Merging ------------------------------------------------------------------------------------------


def test_a_weight_with_nan_is_told_once_and_names_all_who_found_it() -> None:
    model = changed(mlp(), "2.weight", lambda weight: weight[3, 3].fill_(float("nan")))
    found = fxdebug.check(model, normal(16, 8), of_sum)
    (error,) = [finding for finding in found if finding.severity == "error"]
    assert (error.rule, error.path, error.analysis) == ("weight", "2", "numbers, gradients, weights")


def test_errors_come_first_and_advice_last() -> None:
    model, options = sick_models.a_mask_that_lets_padding_through()
    changed(model, "bert.encoder.layer.0.output.dense.bias", lambda bias: bias[3].fill_(50))
    changed(model, "bert.encoder.layer.1.output.dense.weight", lambda weight: weight[5].zero_())
    severities = [finding.severity for finding in fxdebug.check(model, **options)]
    assert severities == sorted(severities, key=["error", "warning", "advice"].index)
    assert severities[0] == "error" and "warning" in severities


def test_the_screen_has_forty_lines_for_a_model_with_a_hundred_faults() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(100) for layer in (nn.Linear(8, 8), nn.ReLU())])
    for layer in model[::2]:
        changed(layer, "weight", lambda weight: weight[3].zero_())
    found = fxdebug.check(model, normal(16, 8))
    lines = found.text(width=80).splitlines()
    assert len(found) >= 100 and len(lines) < 50 and max(map(len, lines)) <= 80
    assert any("more: report.findings" in line for line in lines)


# What was done ------------------------------------------------------------------------------------


def notes(found: Any) -> list[str]:
    return [note.what for note in found.notes if not note.where]


def test_notes_say_what_was_done_and_why_the_rest_was_not(tmp_path: Path) -> None:
    asked = "Not checked: profile, shadow (only where analyses= names it)."
    none_seen = (
        "Not checked: attention (no attention was seen: neither a fused one nor a softmax whose result is multiplied "
        "with values)."
    )
    model, x = mlp(), normal(16, 8)
    assert notes(fxdebug.check(model, x)) == [
        "Checked: numbers, weights, state, structure, activations.", "Not checked: gradients (no loss was given).",
        none_seen, asked,
    ]  # fmt: skip
    assert notes(fxdebug.check(model)) == [
        "Checked: weights, state.",
        "Not checked: numbers, gradients, structure, attention, activations (no inputs were given).", asked,
    ]  # fmt: skip
    assert notes(fxdebug.check(model, x, analyses=["weights", "training"])) == [
        "Checked: weights.", "Not checked: training (give the folder of a watched training).",
    ]  # fmt: skip
    fxdebug.fx_debug(model, x, save=tmp_path / "stats")
    fxdebug.fx_debug(model, x, save=tmp_path / "tensors", values="tensors")
    on_run = "Not checked: gradients, weights, state (a run does not tell: give the model and inputs)."
    assert notes(fxdebug.check(tmp_path / "stats")) == [
        "Checked: numbers, structure.", on_run,
        "Not checked: attention, activations (no tensors were kept: values='tensors').", asked,
    ]  # fmt: skip
    assert notes(fxdebug.check(tmp_path / "tensors"))[0] == "Checked: numbers, structure, activations."


def test_a_run_that_kept_its_tensors_is_checked_for_attention_and_activations(tmp_path: Path) -> None:
    model, options = sick_models.a_mask_that_lets_padding_through()
    fxdebug.fx_debug(model, options["inputs"], save=tmp_path, values="tensors")
    assert told(fxdebug.check(tmp_path)) == [("attention.padding seen", "bert.encoder.layer.2.attention.self")]


def test_a_method_of_a_model_is_run_in_place_of_its_forward() -> None:
    found = fxdebug.check(sick_models.gpt2().generate, torch.tensor([[1, 2, 3]]), of_sum, kwargs={"max_new_tokens": 2})
    assert found.healthy
    assert "Not checked: gradients (needs the model's forward, not another method)." in notes(found)


def test_a_model_on_meta_has_reasons_in_place_of_findings() -> None:
    found = fxdebug.check(nn.Linear(4, 4, device="meta"), torch.ones(2, 4, device="meta"), of_sum)
    assert found.healthy and any(note.startswith("Not checked: gradients") for note in notes(found))


def test_an_exception_of_the_model_passes_through() -> None:
    error = ZeroDivisionError("mine")

    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise error

    with pytest.raises(ZeroDivisionError) as caught:
        fxdebug.check(Raises(), torch.ones(2))
    assert caught.value is error


def test_an_analysis_that_fails_has_its_reason_and_the_others_their_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setattr("fxdebug.features.attention.run.attention", broken)
    model = changed(mlp(), "2.weight", lambda weight: weight[5].zero_())
    found = fxdebug.check(model, normal(16, 8))
    assert ("weights.dead unit", "2") in told(found)
    assert "Not checked: attention (it raised ValueError: planted)." in notes(found)
    assert ("attention.not looked at", "") in told(found, "warning")


@pytest.mark.parametrize("training", [False, True])
def test_model_inputs_and_random_numbers_are_as_before(training: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU()).train(training)
    x = normal(16, 8)
    model(x).sum().backward()
    before = [(name, each.clone() if isinstance(each, Tensor) else each) for name, each in state_of(model).items()]
    random, copy = randomness(), x.clone()
    fxdebug.check(model, x, of_sum, optimizer=torch.optim.Adam(model.parameters()), analyses=ANALYSES)
    assert difference(dict(before), state_of(model), "state") is None
    assert difference((random, copy), (randomness(), x), "random numbers and inputs") is None


# Settings -----------------------------------------------------------------------------------------


def test_thresholds_are_set_by_keyword() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    x = normal(32, 8) * 60
    assert ("activations.saturated", "1") in told(fxdebug.check(model, x))
    assert fxdebug.check(model, x, limits={"activations.saturated": 1}, off=["outlier channel"]) == ()


def test_settings_of_the_nearest_pyproject_are_in_force_and_echoed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "src" / "pkg"
    inner.mkdir(parents=True)
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.fxdebug]\noff = ["outlier channel"]\n[tool.fxdebug.limits]\nactivations.saturated = 1.0\n')
    monkeypatch.chdir(inner)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), normal(32, 8) * 60
    found = fxdebug.check(model, x)
    assert found == ()
    assert found.settings == {
        "tensors": True, "analyses": "numbers, weights, state, structure, activations",
        "off": "activations.outlier channel", "activations.saturated": 1.0, "config": str(file),
    }  # fmt: skip
    assert "Settings: off activations.outlier channel; activations.saturated 1;" in found.text(width=200)
    assert not fxdebug.check(model, x, config=False).healthy
    assert not fxdebug.check(model, x, limits={"activations.saturated": 0.5}).healthy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"off": ["ded unit"]}, r"check: no rule 'ded unit'\. Did you mean 'dead unit'"),
        ({"off": "dead unit"}, r"give a list of rules, off=\['dead unit'\]"),
        ({"limits": {"attention.leek": 1}}, "no threshold 'attention.leek'. Did you mean 'attention.leak'"),
        ({"limits": {"attention.leak": -1}}, "attention.leak = -1 is no number of at least 0"),
        ({"limits": {"attention.leak": True}}, "attention.leak = True is no number"),
        ({"limits": {"activations.samples": 1.5}}, "is no whole number"),
        ({"limits": {"numbers.float16_max": 1}}, "cannot be set: it is part of the method"),
        ({"analyses": ["wieghts"]}, "no analysis 'wieghts'.* Did you mean 'weights'"),
    ],
)
def test_names_and_numbers_that_cannot_work_are_refused_with_what_to_do(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fxdebug.check(nn.ReLU(), torch.ones(2), **options)


def test_the_report_is_written_and_read_back(tmp_path: Path) -> None:
    model = changed(mlp(), "2.weight", lambda weight: weight[5].zero_())
    found = fxdebug.check(model, normal(16, 8))
    read = fxdebug.Report.load(found.json(tmp_path / "check.json"))
    assert [finding.analysis for finding in read.findings] == [finding.analysis for finding in found]
    assert json.loads(found.json_text())["settings"]["analyses"] == "numbers, weights, state, structure, activations"

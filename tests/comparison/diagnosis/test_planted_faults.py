"""The bench of planted faults: each is named, and in pairs that compute the same nothing is found.

The bench itself is tested, too: every fault changes what the model returns, every equal pair does not. What runs
here is what has room in ``make test``; ``make bench-compare`` runs all of it in each mode, and the zoo.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from faults.bench import EQUAL, FAULTS
from faults.case import Pair
from faults.families import FAMILIES, pristine
from faults.judge import answer, compared, false_alarms
from faults.known import ALARMS, BY_ROUNDING, MISSES
from faults.originals import NAMES, reference
from faults.zoo_pairs import KINDS, zoo_pairs
from support.sweep import sampled
from zoo import zoo
from zoo.zoo_sample import quietly

# What compare got wrong once, and two of each model's: `make bench-compare` has all, in both modes.
FOUND_SOMETHING = (*MISSES, "t5/relative-position-buckets", "llama/rotary-base", "encoder/norm-after", "real/")
CHOSEN_FAULTS = sampled(FAULTS, 5, FOUND_SOMETHING)
KINDS_OF_PAIRS = ("port/", "sdpa-and-eager/", "float32-and-bfloat16/", "renamed/", "real/")


def _faults() -> Iterator[Any]:
    """Faults by their numbers, every fifth by its data instead; the bench runs both."""
    for i, name in enumerate(CHOSEN_FAULTS):
        marks = [pytest.mark.xfail(reason=MISSES[name], strict=name not in BY_ROUNDING)] if name in MISSES else []
        by_data = i % 5 == 4 and name not in MISSES  # by data these are found
        yield pytest.param(name, "tensors" if by_data else "statistics", marks=marks)


def _pairs() -> Iterator[Any]:
    """Five kinds of pairs for all models, and those that there is one of."""
    kinds = [name.split("/")[0] for name in EQUAL]
    chosen = [name for name, kind in zip(EQUAL, kinds) if f"{kind}/" in KINDS_OF_PAIRS or kinds.count(kind) == 1]
    for i, name in enumerate(sampled(chosen, 3, ("real/",))):
        marks = [pytest.mark.xfail(reason=ALARMS[name], strict=True)] if name in ALARMS else []
        yield pytest.param(name, "tensors" if i % 3 == 0 else "statistics", marks=marks)


@pytest.mark.parametrize(("name", "mode"), list(_faults()))
def test_compare_names_a_planted_fault(name, mode):
    found = answer(FAULTS[name], mode)
    assert found.right, str(found)


@pytest.mark.parametrize(("name", "mode"), list(_pairs()))
def test_compare_finds_nothing_in_an_equal_pair(name, mode):
    assert false_alarms(EQUAL[name], mode) == []


@pytest.mark.parametrize("name", ["gpt2", "t5", "vit"])
def test_compare_finds_nothing_between_a_saved_run_and_a_live_one(name):
    assert false_alarms(EQUAL[f"twice/{name}"], "tensors", saved=True) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bert/nan", "hidden_states.sqrt() ** 2"),
        ("bert/through-bfloat16", "self.dense(hidden_states).to(torch.bfloat16)"),
        ("gpt2/softmax-over-queries", "torch.softmax(scores, dim=-2)"),
        ("gpt2/heads-merged-without-transpose", "mixed.reshape(hidden_states.shape)"),
        ("port-bert/tanh-gelu", "self.network(x)"),
        ("port-gpt2/erf-gelu", "F.gelu(self.up(x))"),
    ],
)
def test_compare_names_the_line_of_a_planted_fault(name, text):
    file, _, line = str(answer(FAULTS[name], "statistics").source).rpartition(":")
    assert text in linecache.getline(file, int(line))


@pytest.mark.parametrize("name", ["hf/bart/BartForConditionalGeneration"])
def test_compare_finds_nothing_in_equal_runs_of_a_zoo_model(name):
    pairs = list(zoo_pairs(name, quietly(dict(zoo.zoo(["hf"]))[name])))
    assert [pair.kind for pair in pairs] == list(KINDS)
    assert [pair for pair in pairs if pair.alarms or pair.skipped] == []


# The bench itself ----------------------------------------------------------------------------------


def _results(pair: Pair) -> list[list[torch.Tensor]]:
    inputs_b = pair.inputs if pair.inputs_b is None else pair.inputs_b
    with torch.no_grad():
        return [
            _tensors(model(**{name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}))
            for model, inputs in ((pair.a, pair.inputs), (pair.b, inputs_b))
        ]


def _tensors(result: Any) -> list[torch.Tensor]:
    """The logits or states, and what was pooled of them."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, tuple):
        return list(result)
    names = ("logits", "logits_per_image", "last_hidden_state", "pooler_output", "text_embeds", "image_embeds")
    found = [result[name] for name in names if name in result]
    assert found
    return found[:1] if "logits" in result else found


def test_more_than_fifty_faults_are_planted_and_nearly_half_of_them_in_ports():
    places = [fault.place for fault in FAULTS.values()]
    assert len(places) > 50
    assert places.count("port") >= len(places) * 0.45


@pytest.mark.parametrize("name", CHOSEN_FAULTS)
def test_a_planted_fault_changes_what_the_model_returns(name):
    a, b = _results(FAULTS[name].build())
    error = max(((x - y).norm() / x.norm()).item() if x.shape == y.shape else 1.0 for x, y in zip(a, b))
    assert not error < 2e-5, error  # thirty times what the order of additions makes; or NaN


@pytest.mark.parametrize("name", sampled(EQUAL, 6, ("real/", "compiled/")))
def test_an_equal_pair_returns_the_same(name):
    a, b = _results(EQUAL[name].build())
    tolerance = 5e-2 if "bfloat16" in name else 1e-5
    for x, y in zip(a, b, strict=True):
        assert ((x - y).norm() / x.norm()).item() < tolerance


def test_nobody_changes_the_models_that_all_pairs_share():
    def state() -> list[str]:
        found = []
        models = [reference(name, attention) for name in NAMES for attention in ("sdpa", "eager")]
        for model in [*models, *map(pristine, FAMILIES)]:
            held = [x.reshape(-1).contiguous().view(torch.uint8) for x in model.state_dict().values()]
            weights = b"".join(bytes(x.numpy()) for x in held)
            found.append(f"{hashlib.sha256(weights).hexdigest()} {model} {getattr(model, 'config', '')}")
        return found

    before = state()
    for case in (*FAULTS.values(), *EQUAL.values()):
        case.build()
    assert state() == before


def test_a_saved_reference_gives_the_same_answer_as_a_live_one():
    pair = FAULTS["gpt2/erf-gelu"].build()
    live, saved = compared(pair, "tensors"), compared(pair, "tensors", saved=True)
    assert [(row.path, row.op, row.kind, row.error) for row in live.findings] == [
        (row.path, row.op, row.kind, row.error) for row in saved.findings
    ]

"""``fxdebug.flops`` of every zoo model is FlopCounterMode's, but for the differences that are named here (row P4)."""

from __future__ import annotations

import warnings

import pytest
import torch

import fxdebug
from fxdebug.analyses.cost.flops import count_flops
from support.sweep import sampled
from support.torchs_flops import torchs_count
from zoo.zoo_sample import entries

# Models of which torch counts something else although its formulas are repaired, and the reason.
DIFFERENCES = {
    "call/threads": "torch's mode does not see other threads",
    "call/vmap": "shapes inside of vmap lack the batch: listed as unknown",
    "values/parameter-output": "the model returns its own parameter beside, and the loss of the test differs",
    "modes/checkpoint": "torch counts the forward that the backward repeats; ours is the backward's own",
    "modes/checkpoint-reentrant": "the forward runs without gradients, and again in the backward",
    "modes/custom-autograd-function": "the backward of its autograd.Function is the program's own code",
    "modes/jit-script-submodule": "a scripted module is one step without operations: listed as unknown",
    "modes/jit-trace-submodule": "a scripted module is one step without operations: listed as unknown",
    "hooks/spectral-norm": "the backward of a matrix times a vector is an outer product, for torch no product",
    "hf/yoso/YosoForMaskedLM": "the backward of its autograd.Function is the program's own code, which no run shows",
    **dict.fromkeys(
        (
            "hf/minicpm_ocr/MiniCPMOcrForConditionalGeneration", "hf/minicpmv4_6/MiniCPMV4_6ForConditionalGeneration",
            "hf/minicpmv4_7/MiniCPMV4_7ForConditionalGeneration", "hf/olmo_hybrid/OlmoHybridForCausalLM",
            "hf/qwen3_5_moe_text/Qwen3_5MoeForCausalLM", "hf/qwen3_5_text/Qwen3_5ForCausalLM",
        ),
        "linalg.solve_triangular is listed as unknown; torch counts products in its backward, and 0 in its forward",
    ),
}  # fmt: skip

# Models that FlopCounterMode cannot run, and the reason.
NOT_COUNTED_BY_TORCH = {
    "call/cyclic-registration": "it looks for the names of modules without an end",
    "call/grad-in-forward": "its hooks forbid autograd.grad in a forward",
    "state/inplace-after-output": "the backward fails, because its input was overwritten",
    "tensors/meta": "the backward copies out of a tensor without data",
    "values/self-referencing-list-output": "it walks through a list that is in itself",
}

ENTRIES = dict(entries(True))
ALWAYS = (
    "hf/bert/",
    "hf/gpt2/",
    "hf/qwen3_5_text/",
    "hf/swin/",
    "hf/higgs_audio_v2/",
    "layers/",
    "call/vmap",
    "call/g",
)


@pytest.mark.parametrize("name", sampled(ENTRIES, 12, ALWAYS))
def test_p4_the_count_is_that_of_torchs_counter(name: str) -> None:
    build = ENTRIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        total = count_flops(fxdebug.fx_debug(*build()))[0].total
        if name in NOT_COUNTED_BY_TORCH:
            with pytest.raises((RuntimeError, NotImplementedError, RecursionError)):
                torchs_count(*build())
        else:
            torch.manual_seed(0)
            equal = (total.forward, total.backward) == torchs_count(*build())
            assert equal is (name not in DIFFERENCES), DIFFERENCES.get(name)


def test_differences_are_those_of_models_in_the_zoo() -> None:
    assert set(DIFFERENCES) | set(NOT_COUNTED_BY_TORCH) <= set(ENTRIES)


@pytest.mark.parametrize("name", ["call/vmap", "modes/jit-script-submodule", "hf/qwen3_5_text/Qwen3_5ForCausalLM"])
def test_operations_that_are_not_counted_are_listed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = fxdebug.flops(fxdebug.fx_debug(*ENTRIES[name]()))
    assert any(note.what.startswith("not counted, because their number is not known") for note in report.notes)

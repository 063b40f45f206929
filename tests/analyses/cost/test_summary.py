"""``fxdebug.summary`` has the numbers of torchinfo, and the differences by name (row P6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchinfo
from torch import nn

import fxdebug
from support.numerics_cases import bert, gpt2

Built = tuple[nn.Module, Any]


def convolutions() -> Built:
    layers = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=4, bias=False)]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(5, bias=False)), torch.randn(2, 3, 10, 10)


def frozen() -> Built:
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2))
    model[1].requires_grad_(False)
    return model, torch.randn(3, 4)


def mlp() -> Built:
    return nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(6)]), torch.randn(3, 16)


MODELS: dict[str, Callable[[], Built]] = {
    "convolutions": convolutions, "frozen": frozen, "mlp": mlp, "gpt2": gpt2, "bert": bert,
}  # fmt: skip


def both(build: Callable[[], Built]) -> tuple[dict[str, Any], Any]:
    model, inputs = build()
    model.eval()
    with torch.no_grad():
        fxdebug.fx_debug(model, inputs)  # lazy parameters are made
        theirs = torchinfo.summary(model, input_data=inputs, verbose=0)
        ours = fxdebug.summary(model, inputs)
    return {name: number for name, (number, _) in ours.totals.items()}, theirs


@pytest.mark.parametrize("name", MODELS)
def test_p6_parameters_and_sizes_are_those_of_torchinfo(name: str) -> None:
    ours, theirs = both(MODELS[name])
    tied = 0
    if name == "gpt2":  # torchinfo counts the weight of the head again, which is that of the embedding
        model, _ = gpt2()
        tied = model.lm_head.weight.numel()
    assert ours["parameters"] == theirs.total_params - tied
    assert ours["trainable"] == theirs.trainable_params - tied
    tensors = 2 if name == "bert" else 1
    assert ours["size of inputs"] == theirs.total_input - 64 * tensors  # it adds those of Python's storage objects
    assert ours["forward and backward pass"] == theirs.total_output_bytes
    assert ours["size of parameters"] == theirs.total_param_bytes - 4 * tied


def test_p6_multiply_adds_are_those_of_torchinfo_without_biases_and_norms() -> None:
    """Torchinfo also counts the parameters of biases and norms, for each of their results or once."""
    for name in ("convolutions", "mlp"):
        ours, theirs = both(MODELS[name])
        norms = 2 * 8 * 2 if name == "convolutions" else 0  # 16 parameters, a batch of 2
        assert ours["mult-adds"] == theirs.total_mult_adds - norms


def test_a_module_that_is_called_twice_counts_once_where_torchinfo_is_wrong() -> None:
    layer = nn.Linear(4, 4, bias=False)
    report = fxdebug.summary(nn.Sequential(layer, nn.ReLU(), layer), torch.ones(2, 4))
    assert report.totals["parameters"] == (16, "")
    assert report.totals["mult-adds"] == (2 * 2 * 16, "MAC")


def test_the_rows_have_shapes_kernels_shares_and_what_is_trained() -> None:
    rows = {row.call: row for row in fxdebug.summary(*frozen()).rows}
    assert rows["1#0"].params == 72 and rows["1#0"].trainable == 0
    assert round(sum(rows[call].share or 0 for call in ("0#0", "1#0", "2#0")), 9) == 100
    model, inputs = convolutions()
    first = fxdebug.summary(model, inputs).rows[1]
    assert (first.input, first.kernel, first.output) == ("2×3×10×10", "3×3", "2×8×8×8")


def test_repeated_layers_are_one_line_of_80_columns_with_their_sums() -> None:
    text = fxdebug.summary(*mlp()).text(width=80, color=False)
    assert [line.split() for line in text.splitlines() if "×6" in line] == [
        ["0…5", "×6", "Linear", "3×16", "1536", "100", "%", "4.61", "kMAC"]
    ]
    assert max(map(len, text.splitlines())) <= 80


def test_a_model_without_parameters_has_no_share() -> None:
    (row,) = fxdebug.summary(nn.ReLU(), torch.ones(2)).rows
    assert (row.params, row.share, row.macs) == (0, None, 0)

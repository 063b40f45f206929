"""Right ports are equal, in whatever way they are written; one fault in them is found all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison
from support import small_decoders as small
from support import sweep

# How the reference and the port write their norms, positions, attention and gates.
PAIRS = {
    "power-product": ({}, {}),
    "fused norm, pairs": ({}, {"norm": small.FusedNorm, "rotate": small.rotate_pairs, "attend": small.with_mask}),
    "quotient, unbound": (
        {"attend": small.scaled_before},
        {"norm": small.QuotientNorm, "rotate": small.rotate_unbound, "attend": small.scaled_before},
    ),
    "written out": ({"attend": small.written_out}, {"norm": small.QuotientNorm, "rotate": small.rotate_pairs}),
    "from fused": ({"norm": small.FusedNorm}, {"norm": small.PowerNorm, "attend": small.written_out}),
}
WAYS: dict[str, Callable[[nn.Module, nn.Module], Comparison]] = {
    "statistics": lambda a, b: compare(*(fx_debug(model, small.TOKENS) for model in (a, b))),
    "tensors": lambda a, b: compare(*(fx_debug(model, small.TOKENS, values="tensors") for model in (a, b))),
    "models": lambda a, b: compare_models(a, b, small.TOKENS),
}


PRECISIONS = ("float32", "bfloat16", "autocast")


def compared(way: str, precision: str, reference: Any, port: Any) -> Comparison:
    if precision == "bfloat16":
        reference, port = reference.bfloat16(), port.bfloat16()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        return WAYS[way](reference, port)


@pytest.mark.parametrize(("name", "precision", "way"), sweep.spread(PAIRS, PRECISIONS, WAYS, rounds=3))
def test_a_right_port_is_equal(way, name, precision):
    in_a, in_b = PAIRS[name]
    reference = small.decoder(**in_a)
    found = compared(way, precision, reference, small.ported(reference, **in_b))
    assert (found.findings, found.equal) == ((), True)


FAULTS = {
    "scale": ({"attend": small.half_scale}, "h.0.attn", "scaled_dot_product_attention"),
    "mask": ({"attend": small.without_mask}, "h.0.attn", "scaled_dot_product_attention"),
    "activation": ({"gate": small.gated_by_gelu}, "h.0.ffn", "gelu"),
}


@pytest.mark.parametrize(("name", "precision", "way"), sweep.spread(FAULTS, PRECISIONS, WAYS, rounds=3))
def test_a_fault_is_named_in_narrow_dtypes_too(way, name, precision):
    if (way, name) == ("statistics", "scale") and precision != "float32":
        pytest.skip("so small a difference is below what bfloat16 rounds in statistics: tensors show it")
    parts, path, op = FAULTS[name]
    reference = small.decoder()
    found = compared(way, precision, reference, small.ported(reference, **parts))
    assert found.first is not None
    assert (found.first.path, found.first.op) == (path, op)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_another_epsilon_is_named_by_tensors(precision):
    reference = small.decoder()
    port = small.ported(reference)
    port.h[1].norm_2.eps = 0.3
    found = compared("tensors", precision, reference, port)
    assert [(row.path, row.op, row.kind) for row in found.findings] == [("h.1.norm_2", "add", "constant")]


# Two towers ----------------------------------------------------------------------------------------


class Towers(nn.Module):
    """Images and texts, in this order or the other one."""

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__()
        torch.manual_seed(0)
        towers = nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.Sequential(nn.Linear(8, 8), nn.GELU())
        self.towers = nn.ModuleDict(dict(zip(names, towers)))

    def encoded(self, images: torch.Tensor, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = self.towers.values()
        return one(images), other(texts)


class ImagesFirst(Towers):
    def forward(self, images, texts):
        one, other = self.encoded(images, texts)
        return {"image": nn.functional.normalize(one, dim=-1), "text": nn.functional.normalize(other, dim=-1)}


class TextsFirst(Towers):
    def forward(self, texts, images):
        one, other = self.encoded(images, texts)
        return {
            "text": other / other.norm(dim=-1, keepdim=True),
            "image": one / one.pow(2).sum(-1, keepdim=True) ** 0.5,
        }


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("positional", [False, True])
def test_two_towers_are_not_paired_crosswise(positional, tensors):
    torch.manual_seed(3)
    images, texts = torch.randn(4, 8), torch.randn(4, 8)
    a, b = ImagesFirst(("vision", "text")), TextsFirst(("visual", "transformer"))
    inputs = (texts, images) if positional else {"images": images, "texts": texts}
    kind: Any = {"values": "tensors"} if tensors else {}
    found = compare(fx_debug(a, (images, texts), **kind), fx_debug(b, inputs, **kind))
    assert found.equal and found.findings == ()


def test_what_only_one_run_computes_is_no_input_of_the_other():
    class LastWord(nn.Module):
        def __init__(self, way: str) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.way, self.table = way, nn.Embedding(50, 8)

        def forward(self, first, second):
            images, tokens = (first, second) if self.way == "argmax" else (second, first)
            hidden = self.table(tokens)
            last = tokens.argmax(-1) if self.way == "argmax" else (tokens.to(torch.int) == 49).int().argmax(-1)
            return hidden[torch.arange(len(tokens)), last] + images

    tokens, images = torch.tensor([[3, 5, 49], [4, 49, 1]]), torch.randn(2, 8)
    found = compare(fx_debug(LastWord("end"), (tokens, images)), fx_debug(LastWord("argmax"), (images, tokens)))
    assert found.equal and found.findings == ()

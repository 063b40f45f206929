"""Notes on what is written differently but has no effect on these inputs, and strict comparisons."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faults.bench import EQUAL
from faults.judge import traced
from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison

Body = Callable[[Tensor], Tensor]
X = torch.linspace(-2, 2, 32).view(4, 8)


class Around(nn.Module):
    """Two layers and something between them."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.body, self.last = nn.Linear(8, 8), body, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self.first(x)))


def both(one: Body, other: Body, strict: bool = False) -> Comparison:
    with torch.no_grad():
        return compare(fx_debug(Around(one), X), fx_debug(Around(other), X), strict=strict)


def written_norm(eps: float, scale: float = 100.0) -> Body:
    def norm(x: Tensor) -> Tensor:
        x = x * scale
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(-1, keepdim=True) + eps)

    return norm


def far(body: Body) -> Body:
    return lambda x: body(x + 20)


NOTED: dict[str, tuple[Body, Body, str, str]] = {
    "epsilon": (
        lambda x: F.layer_norm(x * 100, (8,), eps=1e-5), lambda x: F.layer_norm(x * 100, (8,), eps=1e-6),
        "constant", "eps=1e-05 in a, eps=1e-06 in b",
    ),
    "epsilon of a norm written out": (written_norm(1e-5), written_norm(1e-6), "constant", "1e-05 in a, 1e-06 in b"),
    "epsilon, fused against written out": (
        lambda x: F.layer_norm(x * 100, (8,), eps=1e-5), written_norm(1e-6),
        "constant", "eps=1e-05 in a, eps=1e-06 in b",
    ),
    "epsilon of a clamp": (
        lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12),
        lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6), "constant", "min=1e-12 in a, min=1e-06 in b",
    ),
    "variant of a GELU": (
        lambda x: F.gelu(x * 1e-3), lambda x: F.gelu(x * 1e-3, approximate="tanh"),
        "constant", "approximate='none' in a, approximate='tanh' in b",
    ),
    "slope": (
        far(F.leaky_relu), far(lambda x: F.leaky_relu(x, 0.2)),
        "constant", "negative_slope=0.01 in a, negative_slope=0.2 in b",
    ),
    "activation": (far(F.relu), far(F.leaky_relu), "operation", "relu in a, leaky_relu in b"),
    "limit that cuts nothing": (lambda x: x.clamp(-100, 100) * 2, lambda x: x * 2, "missing", "only a has it"),
    "activation too many": (far(lambda x: x * 2), far(lambda x: F.relu(x) * 2), "extra", "only b has it"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTED)
def test_a_difference_without_effect_is_a_note_and_a_finding_of_a_strict_comparison(name: str) -> None:
    one, other, kind, text = NOTED[name]
    found, strict = both(one, other), both(one, other, strict=True)
    assert found.verdict == "equal" and len(found.notes) == 1
    assert text in found.notes[0] and found.notes[0].endswith("; its result does not show it, within tolerance")
    assert "note: Around, " in str(found)
    assert (strict.verdict, [row.kind for row in strict.findings], strict.notes) == ("different", [kind], ())
    assert text in strict.findings[0].because and strict.settings["strict"] is True
    assert both(one, one, strict=True).equal


SAME_IN_OTHER_WORDS: dict[str, tuple[Body, Body]] = {
    "a default": (lambda x: F.layer_norm(x, (8,), eps=1e-5), lambda x: F.layer_norm(x, (8,))),
    "fused or written out": (lambda x: F.layer_norm(x * 100, (8,), eps=1e-5), written_norm(1e-5)),
    "a power": (lambda x: x**2, lambda x: x * x),
    "a product": (lambda x: x @ x.t() @ x, lambda x: torch.matmul(torch.matmul(x, x.t()), x)),
    "a scale": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=8**-0.5)[0],
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    ),
    "a GELU written out": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: x * 0.5 * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    ),
    "dropout that is off": (lambda x: F.dropout(x, 0.1, False), lambda x: F.dropout(x, 0.5, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_IN_OTHER_WORDS)
def test_another_notation_is_no_note(name: str) -> None:
    one, other = SAME_IN_OTHER_WORDS[name]
    for first, second in ((one, other), (other, one)):
        strict = both(first, second, strict=True)
        assert strict.equal and not strict.notes, str(strict)


@pytest.mark.parametrize("name", ["port/bert", "port/llama", "port/t5", "port/resnet", "port-of-eager/gpt2"])
def test_a_right_port_is_equal_in_a_strict_comparison_too(name: str) -> None:
    pair = EQUAL[name].build()
    strict = compare(*(traced(model, pair.inputs, "statistics") for model in (pair.a, pair.b)), strict=True)
    assert strict.equal, str(strict)


def test_repeated_layers_are_one_note() -> None:
    def stack(eps: float) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, eps=eps)) for _ in range(4)])

    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)) * 1e4
    with torch.no_grad():
        found = compare(fx_debug(stack(1e-12), inputs), fx_debug(stack(1e-11), inputs))
    assert found.equal and len(found.notes) == 1
    assert found.notes[0].startswith("0.1 and 3 more, layer_norm: eps=1e-12 in a, eps=1e-11 in b; ")


def test_live_models_are_compared_strictly_too() -> None:
    one, other = (Around(lambda x, eps=eps: F.layer_norm(x * 100, (8,), eps=eps)) for eps in (1e-5, 1e-6))
    with torch.no_grad():
        assert compare_models(one, other, X).equal
        assert [row.kind for row in compare_models(one, other, X, strict=True).findings] == ["constant"]


@pytest.mark.parametrize("stale", [True, False])
def test_weights_that_a_run_under_autocast_does_not_use_are_a_finding(stale: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2)), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        before = fx_debug(model, x)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        if not stale:
            torch.clear_autocast_cache()
        after = fx_debug(model, x)
    found = compare(before, after)
    told = [(row.path, row.kind) for row in found.findings if "casts autocast keeps in its cache" in row.because]
    assert told == ([("0", "weights"), ("2", "weights")] if stale else [])

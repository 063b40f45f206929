"""``compare_models`` of a model with a fused operation and of a port that writes it out: the fault is named inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models
from support import sweep

X = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0))
PADDED = torch.zeros(3, 5, dtype=torch.bool).index_fill(1, torch.tensor([4]), True)


class Original(nn.Module):
    def __init__(self, inner: nn.Module, first_of: bool = False) -> None:
        super().__init__()
        self.enter, self.inner, self.leave = nn.Linear(16, 16), inner, nn.LayerNorm(16)
        self.first_of = first_of

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:
        x = self.enter(x)
        y = self.inner(x, *masks)
        return self.leave(x + (y[0] if self.first_of else y))


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, key_padding_mask=padded, need_weights=False)[0]
        return out


class AttendsWrittenOut(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.qkv, self.out, self.fault = nn.Linear(16, 48), nn.Linear(16, 16), fault

    def heads(self, x: Tensor) -> Tensor:
        return x.view(3, 5, 4, 4).permute(0, 3, 1, 2) if self.fault == "heads" else x.view(3, 5, 4, 4).transpose(1, 2)

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        q, k, v = map(self.heads, self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * (0.25 if self.fault == "scale" else 0.5)
        if self.fault != "mask":
            scores = scores.masked_fill(padded[:, None, None], -1.0 if self.fault == "soft mask" else -1e9)
        seen = scores.softmax(-2 if self.fault == "dimension" else -1)
        return self.out((seen @ v).transpose(1, 2).reshape(x.shape))


class NormWrittenOut(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.weight, self.bias, self.fault = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16)), fault

    def forward(self, x: Tensor) -> Tensor:
        centred = x if self.fault == "mean" else x - x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, unbiased=self.fault == "variance")
        y = centred / torch.sqrt(variance + (1e-2 if self.fault == "eps" else 1e-5)) * self.weight
        return y if self.fault == "bias" else y + self.bias


class GeluWrittenOut(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        inner = x + (0.44715 if self.fault == "constant" else 0.044715) * x ** (2 if self.fault == "power" else 3)
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * inner))


class LstmWrittenOut(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        for name, weight in nn.LSTM(16, 16).named_parameters():
            self.register_parameter(name, weight)

    def forward(self, x: Tensor) -> Any:
        h = c = x.new_zeros(len(x), 16)
        made = []
        for step in x.unbind(1):
            of_state = F.linear(h, self.weight_hh_l0, None if self.fault == "bias" else self.bias_hh_l0)
            i, f, g, o = (F.linear(step, self.weight_ih_l0, self.bias_ih_l0) + of_state).chunk(4, -1)
            new = torch.sigmoid(g) if self.fault == "activation" else torch.tanh(g)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * new
            h = torch.sigmoid(o) * (c if self.fault == "last tanh" else torch.tanh(c))
            made.append(h)
        return torch.stack(made, 1), (h, c)


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[str], nn.Module], tuple[Tensor, ...], bool]] = {
    "attention": (Attends, AttendsWrittenOut, (PADDED,), False),
    "norm": (lambda: nn.LayerNorm(16), NormWrittenOut, (), False),
    "gelu": (lambda: nn.GELU(approximate="tanh"), GeluWrittenOut, (), False),
    "lstm": (lambda: nn.LSTM(16, 16, batch_first=True), LstmWrittenOut, (), True),
}
FAULTS = [  # what is asked for: the operation, the kind, the sentence
    ("attention", "scale", "mul", "constant", "0.5 in a, 0.25 in b"),
    ("attention", "mask", "add", "missing", "add of a (test_fused_written_out.py:"),
    ("attention", "soft mask", "masked_fill", "values", "add in a, masked_fill(-1) in b"),
    ("attention", "dimension", "softmax", "constant", "dim=-2 in b, where a's values need dim=-1"),
    (
        "attention",
        "heads",
        "view",
        "wiring",
        "16 elements are split into 4 × 4 in b, where a's values need the two the",
    ),
    ("norm", "mean", "mean", "missing", "mean, sub of a (test_fused_written_out.py:"),
    ("norm", "variance", "var", "constant", "unbiased=True in b, where a's values need unbiased=False"),
    ("norm", "eps", "add", "constant", "1e-05 in a, 0.01 in b"),
    ("norm", "bias", "add", "missing", "add of a (test_fused_written_out.py:"),
    ("gelu", "constant", "mul", "constant", "0.044715 in a, 0.44715 in b"),
    ("gelu", "power", "pow", "constant", "exponent=2 in b, where a's values need exponent=3"),
    ("lstm", "bias", "linear", "missing", "inner.bias_hh_l0 is used in a only"),
    ("lstm", "activation", "sigmoid", "values", "sigmoid in b, where a's values need tanh"),
    ("lstm", "last tanh", "tanh", "missing", "tanh of a (test_fused_written_out.py:"),
]


def pair(kind: str, fault: str) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    original, port, masks, first_of = KINDS[kind]
    torch.manual_seed(1)
    a, b = Original(original(), first_of).eval(), Original(port(fault), first_of).eval()
    for weight in a.parameters():
        nn.init.normal_(weight, 0.2, 0.5)
    b.load_state_dict(dict(zip(b.state_dict(), a.state_dict().values(), strict=True)))
    return a, b, (X, *masks)


@pytest.mark.parametrize(
    ("case", "gradients"),
    sweep.spread(FAULTS, [False, True]),
    ids=lambda one: " ".join(one[:2]) if isinstance(one, tuple) else str(one),
)
def test_a_fault_inside_of_a_fused_operation_is_named(case: tuple[str, str, str, str, str], gradients: bool) -> None:
    kind, fault, op, what, sentence = case
    a, b, inputs = pair(kind, fault)
    with torch.set_grad_enabled(gradients):  # without gradients, attention runs as one kernel
        found = compare_models(a, b, inputs, budget=60)
    assert found.first is not None
    assert (found.first.op, found.first.kind) == (op, what), found.first.because
    assert sentence in found.first.because
    if "where a's values need" in found.first.because:  # an edit of the plain runs repairs it
        assert found.first.proven
    elif kind != "norm":  # of which the plain runs tell as much
        assert found.notes[-1].startswith("run as the operations that they are made of, in both models: ")


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_port_that_writes_out_a_fused_operation_is_equal_and_runs_once(kind: str, gradients: bool) -> None:
    a, b, inputs = pair(kind, "")
    with torch.set_grad_enabled(gradients):
        found = compare_models(a, b, inputs)
    assert found.verdict == "equal"
    assert not any("made of" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["gelu", "lstm"])
def test_a_fused_operation_that_b_lacks_as_a_whole_is_told_as_a_whole(kind: str) -> None:
    a, _, inputs = pair(kind, "")
    b = Original(nn.Identity(), first_of=False).eval()
    b.load_state_dict({name: weight for name, weight in a.state_dict().items() if not name.startswith("inner")})
    found = compare_models(a, b, inputs).first
    assert found is not None and found.kind == "missing"
    assert found.because.startswith(("gelu of a (", "inner of a (", "lstm of a ("))


@pytest.mark.parametrize("gradients", [False, True])
def test_a_weight_of_an_attention_that_runs_as_one_kernel_is_named(gradients: bool) -> None:
    a, _, inputs = pair("attention", "")
    b = Original(Attends()).eval()
    b.load_state_dict(a.state_dict())
    with torch.no_grad():
        b.inner.attention.out_proj.weight.copy_(a.inner.attention.out_proj.weight.T.clone())
    with torch.set_grad_enabled(gradients):
        found = compare_models(a, b, inputs).first
    assert found is not None
    assert (found.kind, found.because) == (
        "weights", "inner.attention.out_proj.weight is that of a transposed",
    )  # fmt: skip


def test_two_biases_of_zeros_are_not_told_to_differ() -> None:
    a = Original(Attends()).eval()  # both biases of the attention are zeros
    b = Original(Attends()).eval()
    b.load_state_dict(a.state_dict())
    with torch.no_grad():
        b.inner.attention.out_proj.weight.copy_(a.inner.attention.out_proj.weight.T.clone())
    found = compare_models(a, b, (X, PADDED)).first
    assert found is not None and "in_proj_bias" not in found.because


def test_another_activation_is_told_by_its_name_and_not_by_its_parts() -> None:
    class Layer(nn.Module):
        def __init__(self, act: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.act, self.up = act, nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.act(self.up(x))

    def net(act: Callable[[Tensor], Tensor]) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(Layer(F.gelu), Layer(act), Layer(F.gelu))

    first = compare_models(net(F.gelu), net(F.silu), X, budget=0).first
    assert first is not None and (first.path, first.op) == ("1", "silu")
    first = compare_models(net(F.gelu), net(F.silu), X).first
    assert first is not None and (first.because, first.proven) == ("gelu in a, silu in b", True)
    assert first.repair == "gelu of a in the place of silu: with this edit b returns what a returns"

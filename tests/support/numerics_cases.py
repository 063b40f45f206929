"""Faults in the numbers of small real models, each with where it must be found: for tests and for the bench.

``CASES`` has one :class:`Case` per fault. ``build()`` returns a fresh model and its inputs; ``path`` is a glob over
module paths and ``op`` the name of the operation that is to blame. :func:`misses` says what ``fxdebug.check`` gets
wrong about one; :func:`false_alarms` what it says about a healthy run.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

INF, NAN = float("inf"), float("nan")

Fault = Callable[[Tensor], Tensor]
Build = Callable[[], tuple[nn.Module, Any]]


@dataclass(frozen=True)
class Case:
    """One planted fault. ``kind`` is the finding's; ``half``: the model runs in float16."""

    name: str
    build: Build
    path: str
    op: str
    kind: str = "nan"


# Models ------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Three layers with a normalisation between: the fault goes into the second."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.norm(torch.relu(layer(x))) + x
        return x


def mlp() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    return Mlp().eval(), torch.randn(4, 8)


def gpt2() -> tuple[nn.Module, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=3, n_head=2)
    return GPT2LMHeadModel(config).eval(), {"input_ids": torch.tensor([[1, 5, 9, 2, 7, 3]])}


def bert() -> tuple[nn.Module, Any]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    ids = torch.tensor([[1, 5, 9, 2, 7, 3], [4, 4, 8, 1, 0, 0]])
    return BertModel(config).eval(), {"input_ids": ids, "attention_mask": (ids > 0).long()}


HOSTS: dict[str, tuple[Build, str]] = {
    "mlp": (mlp, "layers.1"),
    "gpt2": (gpt2, "transformer.h.1.mlp"),
    "bert": (bert, "encoder.layer.1.output"),
}


class Planted(nn.Module):
    """A module of a model with a fault behind it."""

    def __init__(self, inner: nn.Module, fault: Fault) -> None:
        super().__init__()
        self.inner = inner
        self.fault = fault

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.fault(self.inner(*args, **kwargs))


def planted(host: str, fault: Fault, half: bool = False) -> Build:
    """A host with ``fault`` behind one of its modules in the middle."""
    make, place = HOSTS[host]

    def build() -> tuple[nn.Module, Any]:
        model, inputs = make()
        above, _, name = place.rpartition(".")
        parent: Any = model.get_submodule(above)
        setattr(parent, name, Planted(model.get_submodule(place), fault))
        if half:
            model = model.half()
            inputs = inputs.half() if isinstance(inputs, Tensor) else inputs
        return model, inputs

    return build


# Faults: each returns what the module would, but for the NaN or infinity --------------------------


def log_of_negative(x: Tensor) -> Tensor:
    return x + torch.log(-x.abs() - 1)


def log_of_zero(x: Tensor) -> Tensor:
    return x + torch.log(torch.relu(-x.abs()))


def log_of_zero_absorbed(x: Tensor) -> Tensor:
    return x + torch.exp(torch.log(torch.relu(x)))


def zero_by_zero(x: Tensor) -> Tensor:
    centred = x - x
    return x + centred / centred.abs().sum()


def divided_by_zero(x: Tensor) -> Tensor:
    return x / (x - x).sum()


def root_of_negative(x: Tensor) -> Tensor:
    return torch.sqrt(x - 100)


def exp_overflows(x: Tensor) -> Tensor:
    return x + (x.abs() * 1000 + 100).exp()


def matmul_overflows(x: Tensor) -> Tensor:
    large = x.reshape(-1, x.shape[-1]).abs() * 0 + 300
    return x + (large @ large.T).max()


def add_overflows(x: Tensor) -> Tensor:
    large = x * 0 + 6e4
    return large + large


def cast_overflows(x: Tensor) -> Tensor:
    return (x.float() * 0 + 1e5).half()


def rsqrt_of_zero(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x - x).pow(2).mean(-1, keepdim=True))


def masked_rows(x: Tensor) -> Tensor:
    scores = x @ x.transpose(-1, -2)
    length = scores.shape[-1]
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    allowed[0] = False  # the first token may not even look at itself
    return scores.masked_fill(~allowed, -INF).softmax(-1) @ x


def inf_minus_inf(x: Tensor) -> Tensor:
    bound = torch.full_like(x, INF)
    return x + (bound - bound)


def inf_times_zero(x: Tensor) -> Tensor:
    keep = (x > 0).to(x.dtype)
    return x + (1 - keep) * -INF


def arc_cosine_of_two(x: Tensor) -> Tensor:
    return torch.acos(x.abs() + 2)


def power_of_negative(x: Tensor) -> Tensor:
    return (-x.abs() - 1) ** 0.5


def deviation_of_one(x: Tensor) -> Tensor:
    return x / (1 + x[..., :1].std(-1, keepdim=True))


def norm_by_hand(x: Tensor) -> Tensor:
    large = x / x.abs().max() * 1000
    centred = large - large.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def unwritten_memory(x: Tensor) -> Tensor:
    with filled_with_nan():
        memory = torch.empty_like(x)
    memory[..., : x.shape[-1] // 2] = 1.0
    return x * memory


@contextlib.contextmanager
def filled_with_nan() -> Iterator[None]:
    """New memory holds NaN, as it well may."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch._C._set_deterministic_algorithms(True, warn_only=False)  # torch's own function imports its compiler first
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before[0], warn_only=False)
        torch.utils.deterministic.fill_uninitialized_memory = before[1]


def written_in_place(x: Tensor) -> Tensor:
    x = x.clone()
    x[..., 0] = NAN
    return x


def root_in_place(x: Tensor) -> Tensor:
    x = x - 100
    x.sqrt_()
    return x


def zero_vector_normalised(x: Tensor) -> Tensor:
    return x + (x - x) / (x - x).norm(dim=-1, keepdim=True)


def inverse_tanh_of_one(x: Tensor) -> Tensor:
    return torch.atanh(torch.sign(x.abs() + 1))


def product_overflows(x: Tensor) -> Tensor:
    return torch.cumprod((x * 0 + 1e6).repeat(*[1] * (x.dim() - 1), 4), -1)[..., : x.shape[-1]]


def negative_variance(x: Tensor) -> Tensor:
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    return F.batch_norm(rows, torch.zeros(width), torch.full((width,), -1.0)).view_as(x)


def softmax_of_infinity(x: Tensor) -> Tensor:
    return torch.softmax(torch.full_like(x, INF), -1) + x


def remainder_of_zero(x: Tensor) -> Tensor:
    return torch.fmod(x, torch.zeros_like(x))


def entropy(x: Tensor) -> Tensor:
    one_hot = F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype)
    return x - (one_hot * one_hot.log()).sum(-1, keepdim=True)


def negative_power_of_zero(x: Tensor) -> Tensor:
    return x + torch.relu(-x.abs()) ** -1.5


# Faults that were there before the run ------------------------------------------------------------


def damaged_weight() -> tuple[nn.Module, Any]:
    model, inputs = gpt2()
    with torch.no_grad():
        model.get_parameter("transformer.h.1.mlp.c_fc.weight")[3, 5] = NAN
    return model, inputs


def damaged_embedding() -> tuple[nn.Module, Any]:
    model, inputs = bert()
    with torch.no_grad():
        model.get_parameter("embeddings.word_embeddings.weight")[9] = INF
    return model, inputs


def damaged_input() -> tuple[nn.Module, Any]:
    model, x = mlp()
    x[1, 2] = NAN
    return model, x


_IN_MODELS: list[tuple[str, Fault, str, str, str]] = [
    # name, fault, operation, kind, hosts
    ("log of negative", log_of_negative, "log", "nan", "mlp gpt2 bert"),
    ("log of zero", log_of_zero, "log", "inf", "mlp gpt2"),
    ("log of zero, absorbed by exp", log_of_zero_absorbed, "log", "inf", "mlp bert"),
    ("0 / 0", zero_by_zero, "div", "nan", "mlp gpt2"),
    ("x / 0", divided_by_zero, "div", "inf", "gpt2 bert"),
    ("sqrt(-1)", root_of_negative, "sqrt", "nan", "mlp bert"),
    ("exp overflows", exp_overflows, "exp", "inf", "gpt2"),
    ("rsqrt(0)", rsqrt_of_zero, "rsqrt", "inf", "bert"),
    ("a fully masked row", masked_rows, "softmax", "nan", "mlp gpt2 bert"),
    ("inf - inf", inf_minus_inf, "sub", "nan", "gpt2"),
    ("inf * 0", inf_times_zero, "mul", "nan", "mlp bert"),
    ("acos(2)", arc_cosine_of_two, "acos", "nan", "gpt2"),
    ("a power of negative", power_of_negative, "pow", "nan", "mlp"),
    ("std of one element", deviation_of_one, "std", "nan", "gpt2"),
    ("memory never written", unwritten_memory, "empty_like", "uninitialised", "mlp gpt2"),
    ("NaN written in place", written_in_place, "setitem", "nan", "gpt2 bert"),
    ("sqrt_ in place", root_in_place, "sqrt", "nan", "mlp"),
    ("a zero vector normalised", zero_vector_normalised, "div", "nan", "bert"),
    ("atanh(1)", inverse_tanh_of_one, "atanh", "inf", "mlp"),
    ("cumprod overflows", product_overflows, "cumprod", "inf", "gpt2"),
    ("a negative variance", negative_variance, "batch_norm", "nan", "mlp"),
    ("softmax of +inf", softmax_of_infinity, "softmax", "nan", "gpt2"),
    ("a remainder of 0", remainder_of_zero, "fmod", "nan", "bert"),
    ("p log p of one-hot", entropy, "mul", "nan", "mlp"),
    ("0 ** -1.5", negative_power_of_zero, "pow", "inf", "gpt2"),
]
_IN_HALF: list[tuple[str, Fault, str, str, str]] = [
    ("float16: matmul overflows", matmul_overflows, "matmul", "inf", "mlp gpt2"),
    ("float16: add overflows", add_overflows, "add", "inf", "mlp bert"),
    ("float16: a cast overflows", cast_overflows, "half", "inf", "gpt2"),
    ("float16: a norm by hand overflows", norm_by_hand, "pow", "inf", "mlp gpt2"),
]


def _cases() -> Iterator[Case]:
    for table, half in ((_IN_MODELS, False), (_IN_HALF, True)):
        for name, fault, op, kind, hosts in table:
            for host in hosts.split():
                yield Case(f"{name} in {host}", planted(host, fault, half), HOSTS[host][1], op, kind)
    yield Case("a NaN weight in gpt2", damaged_weight, "transformer.h.1.mlp.c_fc", "weight", "weight")
    yield Case("a row of Inf in bert", damaged_embedding, "embeddings.word_embeddings", "weight", "weight")
    yield Case("a NaN input of mlp", damaged_input, "", "x", "input")


CASES = list(_cases())


# What check gets wrong ----------------------------------------------------------------------------


def misses(case: Case, trace: fxdebug.Trace) -> str | None:
    """What is wrong with the answer about a planted fault: it must be the only finding, in its place."""
    found = [finding for finding in fxdebug.check(trace) if finding.severity != "advice"]
    if not found:
        return "nothing was found"
    first = found[0]
    if (first.kind, first.op) != (case.kind, case.op) or not fnmatch.fnmatchcase(first.path, case.path):
        return f"{first.kind} by {first.op} in {first.path!r}, not {case.kind} by {case.op} in {case.path!r}"
    others = [f"{other.node}: {other.what}" for other in found[1:] if other.kind in ("nan", "inf", "input", "weight")]
    return f"also named: {'; '.join(others)}" if others else None


def false_alarms(trace: fxdebug.Trace) -> list[str]:
    """What is said about a run in which nothing is wrong; advice is none."""
    return [str(finding) for finding in fxdebug.check(trace) if finding.severity != "advice"]

"""Operations written as plain calls of torch compute what the run recorded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.comparison.tolerance import error_between
from fxdebug.data.graphs import Op, Ref
from fxdebug.data.values import Group, Thing
from fxdebug.features.repro.distance import relative_error
from fxdebug.features.repro.plain_calls import line_text
from fxdebug.features.repro.region import Line, region_of
from fxdebug.query.network import network_of
from fxdebug.repair.rerun.tensors_at_hand import TensorsAtHand
from fxdebug.stats.measure import measure


class Many(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Embedding(10, 16, padding_idx=0), nn.Conv1d(16, 16, 3, padding=1)
        self.batch, self.group, self.layer, self.rms = (
            nn.BatchNorm1d(16), nn.GroupNorm(4, 16), nn.LayerNorm(16), nn.RMSNorm(16),
        )  # fmt: skip
        self.lstm, self.attention = nn.LSTM(16, 16, batch_first=True), nn.MultiheadAttention(16, 2, batch_first=True)
        self.register_buffer("scale", torch.rand(16))

    def forward(self, ids: Tensor, mask: Tensor) -> Any:
        x = self.embed(ids)
        x = self.group(self.batch(self.conv(x.transpose(1, 2)))).transpose(1, 2)
        x = self.layer(x)
        y, _ = self.lstm(x)
        z, _ = self.attention(x, x, x, need_weights=False)
        x = x + y * z
        q = x.view(x.size(0), x.size(1), 2, 8).transpose(1, 2)
        w = (q @ q.transpose(-1, -2)) / 8**0.5
        w = w.masked_fill(mask[:, None, None] == 0, float("-inf")).softmax(-1, dtype=torch.float32).to(q.dtype)
        o = (w @ q) + F.scaled_dot_product_attention(q, q, q, is_causal=True)
        o = self.rms(o.transpose(1, 2).reshape(x.size(0), -1, 16)) * self.scale + torch.arange(16, device=o.device)
        o[:, 0] = 1.0  # written to in place, and read after it
        o[..., 3] = o[..., 4] * 2
        o += 1
        a, b = o.chunk(2, dim=-1)
        o = torch.cat([-b, a], -1)
        largest = o.max(dim=1).values
        return (
            F.softmax(torch.einsum("bth,bsh->bts", o, o), dim=-1),
            o[..., :8, None],
            o[:, -1],
            largest,
            o.clamp(min=0),
        )


def test_every_operation_computes_what_the_run_recorded_from_the_tensors_that_it_kept() -> None:
    torch.manual_seed(0)
    model, given = Many().eval(), (torch.randint(0, 10, (2, 5)), torch.tensor([[1.0] * 5, [1.0, 1, 1, 0, 0]]))
    trace = fxdebug.fx_debug(model, given, values="tensors")
    hand = TensorsAtHand(trace, "a")
    kept = {value.number for value in trace.values if hand.is_kept(value)}
    seen = set()
    for node in network_of(trace).nodes.values():
        if node.kind not in ("call_function", "call_method") or node.value is None:
            continue
        region = region_of(trace, node.value, node.id, kept - {node.value.number}, hand.is_kept)
        names = {name: hand.given(value).clone() for name, value in region.given.items()}
        names |= {name: hand.weight(value).clone() for name, value in region.weights.items()}
        with torch.no_grad():
            exec("\n".join(map(line_text, region.lines)), {"torch": torch, "F": F}, names)
            result = eval(region.result, {}, names)
        assert (error_between(node.value.stats, measure(result)) or 0.0) < 1e-5, node.id
        if hand.is_kept(node.value):
            assert relative_error(hand.given(node.value), result) < 1e-5, node.id
        seen.add(node.op)
    assert {"embedding", "conv1d", "batch_norm", "lstm", "softmax", "cat", "add_", "getitem", "einsum"} <= seen | {
        "add_"
    }
    assert len(seen) > 25


def text(kind: Any, target: str, *args: Any, **kwargs: Any) -> str:
    name = target.rpartition(".")[2].strip("_")
    return line_text(Line("y", Op(name, kind, name, target, args, kwargs), None, "m#0/op"))


X, PAIR = Ref("x"), Group("sequence", "tuple", (16,))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            ("call_function", "torch.nn.functional.layer_norm", X, PAIR, Ref("w")),
            "F.layer_norm(x, normalized_shape=(16,), weight=w)",
        ),
        (("call_method", "softmax", X, -1), "x.softmax(dim=-1)"),
        (("call_method", "clamp", X, -float("inf"), 2.0), "x.clamp(min=-torch.inf, max=2.0)"),
        (("call_method", "mul", X, -2), "x * (-2)"),
        (("call_method", "to", X, Thing("dtype", "torch.float16")), "x.to(torch.float16)"),
        (("call_function", "_operator.neg", X), "-x"),
        (("call_function", "_operator.iadd", X, 1), "x.add_(1)"),
        (("call_function", "torch._C._nn.gelu", X), "F.gelu(x)"),
    ],
)
def test_a_line_reads_as_one_would_write_it(line: tuple[Any, ...], expected: str) -> None:
    assert text(*line) == f"y = {expected}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("call_function", "mine.ops.double", X), "runs mine.ops.double, which is no call of torch"),
        (("call_function", "torch._ops.mine.double", X), "which is no call of torch"),
        (("call_method", "uniform_", X, Thing("Generator", "<Generator>")), "an object of class Generator"),
    ],
)
def test_what_cannot_be_written_as_a_plain_call_is_refused_with_its_name(line: tuple[Any, ...], why: str) -> None:
    with pytest.raises(fxdebug.UsageError) as error:
        text(*line)
    assert str(error.value).startswith("no script can be written: m#0/op") and why in str(error.value)

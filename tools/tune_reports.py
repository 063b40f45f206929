"""Slow models rebuilt from what people reported, each with one cause and a twin without it, for ``bench_tune.py``.

They were written before their causes had rules, and put to ``profile`` and ``tune`` as those were.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from support.slow_models import Slow
from support.wasted_models import Made

REPORTS: dict[str, Slow] = {}
Built = tuple[nn.Module, tuple[Any, ...], Any, Any]


def report(name: str, *rules: str, changes: tuple[str, ...] = (), **options: Any) -> Callable[..., Any]:
    """Register a model by its name, with the rules and the changes that name its cause."""

    def add(build: Callable[[bool], Built]) -> Callable[[bool], Built]:
        REPORTS[name] = Slow(build, rules, changes, **options)
        return build

    return add


def squares(out: Tensor) -> Tensor:
    """Return a loss."""
    return out.square().mean()


def _anomalies(fixed: bool) -> Any:
    return torch.autograd.set_detect_anomaly(not fixed)  # type: ignore[no-untyped-call]


@report("anomaly mode left on", "anomaly mode", changes=("no anomaly mode",), around=_anomalies)  # nerf-pytorch 42
def anomaly_mode(_: bool) -> Built:
    """Layers whose training looks for NaN in each gradient (also mbpo_pytorch 8)."""
    layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    return nn.Sequential(*layers), (torch.randn(64, 64),), squares, None


@report(
    "weight norm in inference", "same in each run", changes=("weights computed once",)
)  # vllm-omni 6927, waveglow 21
def vocoder(fixed: bool) -> Built:
    """Convolutions of a vocoder on short pieces of sound."""
    layers: list[nn.Module] = []
    for _ in range(8):
        layer = nn.Conv1d(192, 192, 7, padding=3)
        layers += [layer if fixed else parametrizations.weight_norm(layer), nn.LeakyReLU(0.1)]
    return nn.Sequential(*layers).eval(), (torch.randn(1, 192, 24),), None, None


@report("heads of keys repeated", "repeated in memory")  # llm-foundry 628, transformers 36218
def grouped_heads(fixed: bool) -> Built:
    """A step of decoding with a long cache of two heads of keys and values for sixteen of queries."""

    def run(self: Any, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (16, -1)).transpose(1, 2)
        if fixed:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:
            k, v = (one[:, :, None].expand(-1, -1, 8, -1, -1).flatten(1, 2) for one in (k, v))
            y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    cache = torch.randn(2, 2, 2048, 32), torch.randn(2, 2, 2048, 32)
    return (
        Made(run, q=nn.Linear(512, 512), out=nn.Linear(512, 512)).eval(),
        (torch.randn(2, 1, 512), *cache),
        None,
        None,
    )


@report("a mask in each layer", "repeated work")  # TransformerLens 493
def masks(fixed: bool) -> Built:
    """Attention in a window, whose mask each layer makes."""

    def mask(batch: int, length: int) -> Tensor:
        place = torch.arange(length)
        far = place[:, None] - place[None]
        return torch.where((far >= 0) & (far < 64), 0.0, -1e9)[None, None].repeat(batch, 1, 1, 1)

    def run(self: Any, x: Tensor) -> Tensor:
        once = mask(*x.shape[:2]) if fixed else None
        for qkv in self.layers:
            q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in qkv(x).chunk(3, -1))
            bias = mask(*x.shape[:2]) if once is None else once
            x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        return x

    layers = nn.ModuleList(nn.Linear(32, 96) for _ in range(6))
    return Made(run, layers=layers).eval(), (torch.randn(4, 256, 32),), None, None


@report("rows written one by one", "row by row")  # asked on forums, time and again
def rows_written(fixed: bool) -> Built:
    """A loop that fills the result row by row."""

    def run(self: Any, x: Tensor) -> Tensor:
        if fixed:
            return torch.tanh(self.layer(x)) ** 2
        out = torch.zeros_like(x)
        for row in range(len(x)):
            out[row] = torch.tanh(self.layer(x[row])) ** 2
        return out

    return Made(run, layer=nn.Linear(64, 64)).eval(), (torch.randn(300, 64),), None, None


@report(
    "rotary tables in each layer", "repeated work", "same in each run"
)  # rotary-embedding-torch 36, raft in vision 8500
def rotary(fixed: bool) -> Built:
    """Angles in float64 that each layer computes."""

    def table(length: int) -> tuple[Tensor, Tensor]:
        rates = 1 / 10000 ** (torch.arange(0, 64, 2).double() / 64)
        angles = torch.cat([torch.arange(length)[:, None] * rates[None]] * 2, -1)
        return angles.cos().float(), angles.sin().float()

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return x * cos + torch.cat([-x[..., 32:], x[..., :32]], -1) * sin

    known = table(2048)

    def run(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            q, k = layer(x).chunk(2, -1)
            cos, sin = known if fixed else table(x.shape[1])
            x = x + turned(q, cos, sin) * turned(k, cos, sin)
        return x

    layers = nn.ModuleList(nn.Linear(64, 128) for _ in range(8))
    return Made(run, layers=layers).eval(), (torch.randn(1, 2048, 64),), None, None


@report("a window in float64", "float64")  # windows made by numpy
def window(fixed: bool) -> Built:
    """Spectra of sound below a window in float64."""
    shape = torch.hann_window(512, dtype=torch.float32 if fixed else torch.float64)

    def run(self: Any, x: Tensor) -> Tensor:
        return self.layer(torch.fft.rfft(x.unfold(-1, 512, 128) * shape).abs().float())  # type: ignore[no-any-return]

    return Made(run, layer=nn.Linear(257, 64)).eval(), (torch.randn(4, 60_000),), None, None


@report("a copy of the model in each step", "copies", "outside torch")  # averages of weights by deepcopy
def teacher(fixed: bool) -> Built:
    """A teacher that is copied in each forward."""
    body = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])
    kept = copy.deepcopy(body)

    def run(self: Any, x: Tensor) -> Tensor:
        other = kept if fixed else copy.deepcopy(self.body)
        return self.body(x) - 0.5 * other(x)  # type: ignore[no-any-return]

    return Made(run, body=body).eval(), (torch.randn(4, 512),), None, None


@report("checkpoints of small layers", "recomputation", changes=("no recomputation",))  # memory that is there
def checkpoints(fixed: bool) -> Built:
    """Blocks that the code itself gives to ``checkpoint``."""

    def run(self: Any, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + (block(x) if fixed else checkpoint(block, x, use_reentrant=False))
        return x

    blocks = nn.ModuleList(nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(4))
    return Made(run, blocks=blocks), (torch.randn(256, 128),), squares, None


@report("distances by repeat", "repeated in memory")  # clustering written with repeat
def distances(fixed: bool) -> Built:
    """Distances of all pairs of rows."""

    def run(self: Any, x: Tensor) -> Tensor:
        x = self.layer(x)
        if fixed:
            return torch.cdist(x, x).softmax(-1)
        one, other = x[:, None].repeat(1, len(x), 1), x[None].repeat(len(x), 1, 1)
        return (one - other).pow(2).sum(-1).sqrt().softmax(-1)

    return Made(run, layer=nn.Linear(64, 32)).eval(), (torch.randn(400, 64),), None, None


@report("dropout in evaluation", "training mode")  # functional dropout without training=
def dropout(fixed: bool) -> Built:
    """Dropout that evaluation does not switch off."""

    def run(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(F.dropout(layer(x), 0.2, training=self.training or not fixed))
        return x

    layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))
    return Made(run, layers=layers).eval(), (torch.randn(1024, 128),), None, None


@report("keys and values grow by cat", "grows by cat", "row by row", "loop over time")  # keras-hub 780
def cache(fixed: bool) -> Built:
    """Steps of attention over what came before."""

    def run(self: Any, x: Tensor) -> Tensor:
        q, k, v = self.layer(x).chunk(3, -1)
        if fixed:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        keys, values, out = k[:, :0], v[:, :0], []
        for step in range(x.shape[1]):
            keys = torch.cat([keys, k[:, step : step + 1]], 1)
            values = torch.cat([values, v[:, step : step + 1]], 1)
            out.append(F.scaled_dot_product_attention(q[:, step : step + 1], keys, values))
        return torch.cat(out, 1)

    return Made(run, layer=nn.Linear(128, 384)).eval(), (torch.randn(8, 160, 128),), None, None


@report("a sort for the best four", "slice used")  # top-k by sorting
def best(fixed: bool) -> Built:
    """The best words of a vocabulary."""

    def run(self: Any, x: Tensor) -> Tensor:
        scores = self.layer(x)
        return scores.topk(4, -1).values if fixed else scores.sort(-1, descending=True)[0][:, :4]  # type: ignore[no-any-return]

    return Made(run, layer=nn.Linear(64, 8000)).eval(), (torch.randn(64, 64),), None, None


@report("an inverse that is multiplied", "inverse")  # Gaussian processes, Kalman filters
def inverse(fixed: bool) -> Built:
    """Small linear systems (with two threads, solving large ones never ends in MKL on some machines)."""

    def run(self: Any, a: Tensor, b: Tensor) -> Tensor:
        a = a @ a.mT + torch.eye(a.shape[-1])
        return self.layer(torch.linalg.solve(a, b) if fixed else torch.linalg.inv(a) @ b)  # type: ignore[no-any-return]

    given = torch.randn(64, 64, 64), torch.randn(64, 64, 64)
    return Made(run, layer=nn.Linear(64, 64)).eval(), given, None, None


@report("a mask for each class", "row by row", "reads numbers")  # means of segments
def classes(fixed: bool) -> Built:
    """Means of the points of each class."""

    def run(self: Any, x: Tensor, kinds: Tensor) -> Tensor:
        h = self.layer(x)
        if not fixed:
            return torch.stack([h[kinds == kind].mean(0) for kind in range(40)])
        sums = h.new_zeros(40, 32).index_add(0, kinds, h)
        return sums / h.new_zeros(40).index_add(0, kinds, torch.ones(len(kinds)))[:, None]

    return Made(run, layer=nn.Linear(32, 32)).eval(), (torch.randn(20_000, 32), torch.arange(20_000) % 40), None, None


@report("heads one by one", "side by side")  # one layer for each label
def heads(fixed: bool) -> Built:
    """Many small heads on one body."""

    def run(self: Any, x: Tensor) -> Tensor:
        return self.whole(x) if fixed else torch.cat([head(x) for head in self.heads], -1)  # type: ignore[no-any-return]

    many = nn.ModuleList(nn.Linear(64, 4) for _ in range(96))
    return Made(run, heads=many, whole=nn.Linear(64, 384)).eval(), (torch.randn(16, 64),), None, None


@report("a model in float64", changes=("float32 weights",))  # weights that numpy made
def doubles(fixed: bool) -> Built:
    """Layers in float64."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(384, 384), nn.ReLU())]
    kind = torch.float32 if fixed else torch.float64
    return nn.Sequential(*layers).eval().to(kind), (torch.randn(256, 384, dtype=kind),), None, None


@report("a table of positions in each run", "same in each run")  # encodings made in the forward
def positions(fixed: bool) -> Built:
    """Sinusoids that are added to the input."""

    def table(length: int, width: int) -> Tensor:
        rates = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
        angles = torch.arange(length).float()[:, None] * rates
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)

    known = table(4096, 128)

    def run(self: Any, x: Tensor) -> Tensor:
        return self.layer(x + (known if fixed else table(*x.shape[1:])))  # type: ignore[no-any-return]

    return Made(run, layer=nn.Linear(128, 8)).eval(), (torch.randn(1, 4096, 128),), None, None


@report("items of a batch one by one", "row by row")  # a batch that is taken apart
def items(fixed: bool) -> Built:
    """A perceptron on one item after the other."""

    def run(self: Any, x: Tensor) -> Tensor:
        return self.body(x) if fixed else torch.cat([self.body(x[i : i + 1]) for i in range(len(x))])  # type: ignore[no-any-return]

    body = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
    return Made(run, body=body).eval(), (torch.randn(10, 1024),), None, None


@report("a loss of one-hot rows", "one-hot product")  # cross entropy written out
def one_hot_loss(fixed: bool) -> Built:
    """A module that returns its loss over a large vocabulary."""
    words = torch.randint(0, 8000, (128,))

    def run(self: Any, x: Tensor) -> Tensor:
        scores = self.layer(x)
        if fixed:
            return F.cross_entropy(scores, words)
        return -(F.one_hot(words, 8000).float() * torch.log(torch.softmax(scores, -1) + 1e-9)).sum(-1).mean()  # type: ignore[no-any-return]

    return Made(run, layer=nn.Linear(32, 8000)), (torch.randn(128, 32),), lambda loss: loss, None


@report("looked at for NaN in each layer", "checks")  # asserts that stayed
def checks(fixed: bool) -> Built:
    """Layers that assert that their results are finite."""

    def run(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
            if not fixed:
                assert not torch.isnan(x).any() and not torch.isinf(x).any()
        return x

    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))
    return Made(run, layers=layers).eval(), (torch.randn(2048, 64),), None, None


@report("copies around a norm", "copies")  # channels to the end and back
def norms(fixed: bool) -> Built:
    """Convolutions with a norm of the channels."""

    def run(self: Any, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms):
            x = layer(x).permute(0, 2, 3, 1)
            x = norm(x).permute(0, 3, 1, 2) if fixed else norm(x.contiguous()).permute(0, 3, 1, 2).contiguous().clone()
        return x

    layers = nn.ModuleList(nn.Conv2d(64, 64, 1) for _ in range(4))
    return Made(run, layers=layers, norms=nn.ModuleList(nn.LayerNorm(64) for _ in range(4))).eval(), (
        torch.randn(4, 64, 48, 48),
    ), None, None  # fmt: skip


@report("a layer in each step of time", "loop over time", "row by row")  # recurrences written out
def scan(fixed: bool) -> Built:
    """A linear recurrence, whose input layer runs in each step."""

    ages = torch.arange(256)
    powers = 0.9 ** (ages[:, None] - ages).clamp(min=0) * (ages[:, None] >= ages)

    def run(self: Any, x: Tensor) -> Tensor:
        if fixed:
            return powers @ self.layer(x)
        h, out = x.new_zeros(x.shape[0], 64), []
        for step in range(x.shape[1]):
            h = h * 0.9 + self.layer(x[:, step])
            out.append(h)
        return torch.stack(out, 1)

    return Made(run, layer=nn.Linear(32, 64)).eval(), (torch.randn(4, 256, 32),), None, None


@report("enlarged before it is cut", "slice used")  # masks of large pictures
def enlarged(fixed: bool) -> Built:
    """A picture that is enlarged, and of which a corner is used."""

    def run(self: Any, x: Tensor) -> Tensor:
        h = self.layer(x[:, :, :3, :3]) if fixed else self.layer(x)
        return F.interpolate(h, scale_factor=8, mode="bilinear")[:, :, :24, :24]  # type: ignore[no-any-return]

    return Made(run, layer=nn.Conv2d(3, 16, 3, padding=1)).eval(), (torch.randn(2, 3, 48, 48),), None, None

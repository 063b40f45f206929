"""A second set of slow models rebuilt from public reports, each with one cause and a twin without it.

They were put to ``profile`` and ``tune`` before there were rules that fit them; docs/tune.md has the first answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from support.slow_models import Slow
from support.wasted_models import Made
from tune_reports import Built

HELD_OUT: dict[str, Slow] = {}


def held(name: str, *rules: str, left: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Register a model by its name, with the rules that name its cause, and those that are true of its twin, too."""

    def add(build: Callable[[bool], Built]) -> Callable[[bool], Built]:
        HELD_OUT[name] = Slow(build, rules, left=left)
        return build

    return add


@held("a norm written out", "written out")  # LoongForge 136, pytorch 153666
def norm(fixed: bool) -> Built:
    """Perceptrons with layer norms of single operations."""

    def run(self: Any, x: Tensor) -> Tensor:
        for weight, bias in zip(self.weights, self.biases):
            if fixed:
                x = x + F.layer_norm(x, x.shape[-1:], weight, bias, 1e-6)
            else:
                mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
                x = x + ((x - mean) / torch.sqrt(var + 1e-6) * weight + bias)
        return self.layer(x)  # type: ignore[no-any-return]

    weights, biases = ([nn.Parameter(torch.rand(256)) for _ in range(6)] for _ in range(2))
    lists = {"weights": nn.ParameterList(weights), "biases": nn.ParameterList(biases)}
    return Made(run, layer=nn.Linear(256, 8), **lists).eval(), (torch.randn(8, 512, 256),), None, None


@held("distances by broadcasting", "large between")  # kfold 308, pytorch-softdtw-cuda 23
def distances(fixed: bool) -> Built:
    """Distances of residues, as features."""

    def run(self: Any, x: Tensor, y: Tensor) -> Tensor:
        x, y = self.layer(x), self.layer(y)
        d = torch.cdist(x, y) if fixed else (x[:, None] - y[None]).norm(dim=-1)
        return torch.exp(-d).sum(-1)

    return Made(run, layer=nn.Linear(24, 24)).eval(), (torch.randn(600, 24), torch.randn(600, 24)), None, None


@held("a diagonal matrix multiplied", "one-hot product")  # KernelBench 21, gpytorch 991
def diagonal(fixed: bool) -> Built:
    """Rows that are scaled, each by its own number."""

    def run(self: Any, x: Tensor) -> Tensor:
        h = self.layer(x)
        scale = self.scale(x).squeeze(-1).sigmoid()
        return h * scale[..., None] if fixed else torch.diag_embed(scale) @ h

    parts = {"layer": nn.Linear(64, 64), "scale": nn.Linear(64, 1)}
    return Made(run, **parts).eval(), (torch.randn(4, 800, 64),), None, None


@held("a text encoded in each step", "repeated work")  # motion-diffusion-model 151
def denoiser(fixed: bool) -> Built:
    """A sampler whose body encodes the text in each step."""

    def run(self: Any, x: Tensor, text: Tensor) -> Tensor:
        known = self.encode(text).mean(1) if fixed else None
        for step in range(10):
            about = self.encode(text).mean(1) if known is None else known
            x = x - 0.1 * self.body(torch.cat([x, about, torch.full_like(x[:, :1], step / 10)], -1))
        return x

    encode = nn.Sequential(nn.Embedding(200, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 64))
    body = nn.Sequential(nn.Linear(97, 128), nn.SiLU(), nn.Linear(128, 32))
    given = torch.randn(4, 32), torch.randint(0, 200, (4, 77))
    return Made(run, encode=encode, body=body).eval(), given, None, None


@held("a long kernel", "long kernel")  # pytorch 21462, torchaudio 2469
def reverb(fixed: bool) -> Built:
    """A room's response of 6000 samples on a piece of sound."""

    def run(self: Any, x: Tensor) -> Tensor:
        kernel = self.kernel
        if not fixed:
            return F.conv1d(F.pad(x[:, None], (kernel.shape[-1] - 1, 0)), kernel[None, None].flip(-1))[:, 0].tanh()
        size = x.shape[-1] + kernel.shape[-1]
        wet = torch.fft.irfft(torch.fft.rfft(x, size) * self.spectrum, size)
        return wet[:, : x.shape[-1]].tanh()

    model = Made(run)
    model.register_buffer("kernel", torch.randn(6000) * torch.linspace(0, -8, 6000).exp())
    model.register_buffer("spectrum", torch.fft.rfft(model.kernel, 22_000))
    return model.eval(), (torch.randn(2, 16_000),), None, None


@held("a convolution by unfold", "repeated in memory")  # pytorch 47990, kervolution 1
def unfolded(fixed: bool) -> Built:
    """Convolutions of 3 × 3 that are written as products of patches."""

    def run(self: Any, x: Tensor) -> Tensor:
        for weight in self.weights:
            if fixed:
                x = F.conv2d(x, weight, padding=1).relu()
            else:
                patches = F.unfold(x, 3, padding=1)
                y = (patches.transpose(1, 2) @ weight.flatten(1).t()).transpose(1, 2)
                x = F.fold(y, x.shape[-2:], 1).relu()
        return x.mean((-1, -2))

    weights = nn.ParameterList(nn.Parameter(torch.randn(16, 16, 3, 3) / 12) for _ in range(4))
    return Made(run, weights=weights).eval(), (torch.randn(4, 16, 64, 64),), None, None


@held("numbers through Python", "numbers of Python")  # Soft-NMS 3, ultralytics 17069
def decoded(fixed: bool) -> Built:
    """Boxes that are decoded with the numbers of Python."""

    def run(self: Any, x: Tensor) -> Tensor:
        found = self.layer(x)
        if fixed:
            return torch.cat([found[:, :2] * 0.1, found[:, 2:].exp().clamp(max=50)], -1)
        boxes = []
        for a, b, w, h in found.detach().cpu().tolist():
            boxes.append([a * 0.1, b * 0.1, min(math.exp(w), 50), min(math.exp(h), 50)])
        return torch.tensor(boxes)

    return Made(run, layer=nn.Linear(32, 4)).eval(), (torch.randn(6000, 32),), None, None


@held("scores by a product and a sum", "large between")  # Attention-Augmented-Conv2d 26
def scores(fixed: bool) -> Built:
    """Attention whose scores are products of all pairs that are then summed."""

    def run(self: Any, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        if fixed:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.sum(q.unsqueeze(-2) * k.unsqueeze(-3), dim=-1).div(4).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    return Made(run, qkv=nn.Linear(64, 192), out=nn.Linear(64, 64)).eval(), (torch.randn(2, 200, 64),), None, None


@held("a teacher that follows by single weights", "weights one by one")  # lightly 1899, ultralytics 25315
def follower(fixed: bool) -> Built:
    """A teacher whose weights follow in each forward, one after the other."""

    def make() -> nn.Sequential:
        return nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)) for _ in range(60)])

    def run(self: Any, x: Tensor) -> Tensor:
        ours, theirs = list(self.student.parameters()), list(self.teacher.parameters())
        with torch.no_grad():
            if fixed:
                torch._foreach_lerp_(theirs, ours, 0.01)  # type: ignore[attr-defined]
            else:
                for one, other in zip(ours, theirs):
                    other.data = other.data * 0.99 + one.data * 0.01
        return self.head(x)  # type: ignore[no-any-return]

    return Made(run, student=make(), teacher=make(), head=nn.Linear(16, 4)), (torch.randn(8, 16),), None, None


@held("an ensemble one by one", "side by side")  # the tutorial on ensembles
def ensemble(fixed: bool) -> Built:
    """Thirty small critics that see the same states."""

    def run(self: Any, x: Tensor) -> Tensor:
        if not fixed:
            return torch.stack([critic(x) for critic in self.critics]).mean(0)
        h = torch.baddbmm(self.b1, x.expand(30, -1, -1), self.w1).relu()
        return torch.baddbmm(self.b2, h, self.w2).mean(0)

    torch.manual_seed(1)
    critics = nn.ModuleList(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(30))
    model = Made(run, critics=critics)
    for number, place in ((1, 0), (2, 2)):
        weights = [critic[place].weight.detach().t() for critic in critics]  # type: ignore[index]
        biases = [critic[place].bias.detach()[None] for critic in critics]  # type: ignore[index]
        model.register_buffer(f"w{number}", torch.stack(weights), persistent=False)
        model.register_buffer(f"b{number}", torch.stack(biases), persistent=False)
    return model.eval(), (torch.randn(32, 20),), None, None


@held(
    "generation without a cache", "earlier positions again", left=("loop over time", "grows by cat")
)  # LongChat 27, nanoGPT
def generated(fixed: bool) -> Built:
    """A generator that runs over all that was written for each new word."""

    def run(self: Any, words: Tensor) -> Tensor:
        past: list[Any] = [None] * len(self.blocks)
        for _ in range(24):
            new = words[:, -1:] if fixed and past[0] is not None else words
            x = self.words(new)
            for number, block in enumerate(self.blocks):
                q, k, v = block[0](x).chunk(3, -1)
                if fixed:
                    if past[number] is not None:
                        k, v = (torch.cat(pair, 1) for pair in zip(past[number], (k, v)))
                    past[number] = (k, v)
                a = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[1] == k.shape[1])
                x = x + block[1](a)
                x = x + block[3](F.gelu(block[2](x)))
            words = torch.cat([words, self.head(x[:, -1]).argmax(-1, keepdim=True)], 1)
        return words

    blocks = nn.ModuleList(
        nn.ModuleList([nn.Linear(128, 384), nn.Linear(128, 128), nn.Linear(128, 512), nn.Linear(512, 128)])
        for _ in range(3)
    )
    parts = {"words": nn.Embedding(300, 128), "blocks": blocks, "head": nn.Linear(128, 300)}
    return Made(run, **parts).eval(), (torch.randint(0, 300, (4, 64)),), None, None


@held("a dense graph", "mostly zeros")  # graph networks with dense adjacency
def graph(fixed: bool) -> Built:
    """Two layers of a graph network on 3000 nodes with four neighbours each."""
    near = torch.zeros(3000, 3000).scatter_(1, torch.randint(0, 3000, (3000, 4)), 0.25)

    def run(self: Any, x: Tensor, a: Tensor) -> Tensor:
        h = (a @ self.one(x)).relu()
        return a @ self.two(h)

    given = torch.randn(3000, 32), near.to_sparse_csr() if fixed else near
    return Made(run, one=nn.Linear(32, 32), two=nn.Linear(32, 8)).eval(), given, None, None


@held("a table filled cell by cell", "loop over time", left=("loop over time",))  # soft-DTW in Python
def warped(fixed: bool) -> Built:
    """Dynamic time warping of two series."""

    def run(self: Any, x: Tensor, y: Tensor) -> Tensor:
        d = torch.cdist(self.layer(x), self.layer(y))
        n, m = d.shape
        r = d.new_full((n + 1, m + 1), math.inf)
        r[0, 0] = 0
        if not fixed:
            for i in range(1, n + 1):
                for j in range(1, m + 1):
                    best = torch.stack([r[i - 1, j - 1], r[i - 1, j], r[i, j - 1]])
                    r[i, j] = d[i - 1, j - 1] - torch.logsumexp(-best, 0)
            return r[n, m]
        for s in range(2, n + m + 1):
            i = torch.arange(max(1, s - m), min(n, s - 1) + 1)
            j = s - i
            best = torch.stack([r[i - 1, j - 1], r[i - 1, j], r[i, j - 1]])
            r[i, j] = d[i - 1, j - 1] - torch.logsumexp(-best, 0)
        return r[n, m]

    return Made(run, layer=nn.Linear(8, 8)).eval(), (torch.randn(24, 8), torch.randn(24, 8)), None, None


@held("one vector for all points", "equal rows", left=("slow function",))  # PointNet's segmentation
def points(fixed: bool) -> Built:
    """Points that are labelled with the help of one vector for the whole cloud."""

    def run(self: Any, x: Tensor) -> Tensor:
        h = self.each(x)
        whole = h.max(1, keepdim=True).values
        if fixed:
            mixed = self.near(h) + self.far(whole)
        else:
            mixed = self.near(h) + self.far(whole.repeat(1, x.shape[1], 1))
        return self.out(mixed.relu())  # type: ignore[no-any-return]

    far = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 64))
    parts = {"each": nn.Linear(3, 128), "near": nn.Linear(128, 64), "far": far, "out": nn.Linear(64, 8)}
    return Made(run, **parts).eval(), (torch.randn(4, 1024, 3),), None, None


@held("scores of words that nobody asks for", "slice used")  # BERT: only masked positions have a loss
def masked(fixed: bool) -> Built:
    """A model of masked words that scores all words and keeps the masked ones."""
    hidden = torch.rand(8, 128) < 0.12

    def run(self: Any, x: Tensor, hidden: Tensor) -> Tensor:
        if fixed:
            return self.words(self.body(x[hidden]).relu())  # type: ignore[no-any-return]
        return self.words(self.body(x).relu())[hidden]  # type: ignore[no-any-return]

    return (
        Made(run, body=nn.Linear(64, 64), words=nn.Linear(64, 5000)).eval(),
        (torch.randn(8, 128, 64), hidden),
        None,
        None,
    )


@held("a Kronecker product", "large between")  # LoKr, peft
def kronecker(fixed: bool) -> Built:
    """A layer whose weight is the Kronecker product of two small ones."""

    def run(self: Any, x: Tensor) -> Tensor:
        if fixed:
            return (self.a @ (x.unflatten(-1, (32, 32)) @ self.b.t())).flatten(-2).relu()
        return F.linear(x, torch.kron(self.a, self.b)).relu()

    model = Made(run)
    model.a, model.b = (nn.Parameter(torch.randn(32, 32) / 6) for _ in range(2))
    return model.eval(), (torch.randn(16, 1024),), None, None


@held("running sums by a triangle", "mostly zeros")  # forums: cumsum by a matrix of ones
def running(fixed: bool) -> Built:
    """Running means of long series."""

    def run(self: Any, x: Tensor) -> Tensor:
        h = self.layer(x)
        n = x.shape[1]
        sums = h.cumsum(1) if fixed else torch.tril(torch.ones(n, n)) @ h
        return sums / torch.arange(1, n + 1)[:, None]  # type: ignore[no-any-return]

    return Made(run, layer=nn.Linear(16, 32)).eval(), (torch.randn(2, 1500, 16),), None, None


@held("turned in complex128", "float64")  # rotary tables from numpy
def turned(fixed: bool) -> Built:
    """Queries that are turned by a table of complex numbers."""
    angles = torch.arange(1024)[:, None] * (10000.0 ** -(torch.arange(0, 64, 2) / 64))[None]
    table = torch.polar(torch.ones_like(angles), angles).to(torch.complex64 if fixed else torch.complex128)

    def run(self: Any, x: Tensor) -> Tensor:
        q = self.layer(x).unflatten(-1, (4, 32, 2))
        pairs = torch.view_as_complex(q.contiguous()) * table[:, None]
        return torch.view_as_real(pairs).flatten(-3).square().float().mean(-1)

    return Made(run, layer=nn.Linear(64, 256)).eval(), (torch.randn(4, 1024, 64),), None, None

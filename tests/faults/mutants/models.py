"""Small models in which faults are planted at random places: their sources are changed, so each stands on its own.

``MODELS`` has for each name its class and a function that makes the inputs. Weights come of :func:`built`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Feed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Attention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        scores = scores.masked_fill(hidden, -10000.0)
        mixed = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-5)
        self.attention = Attention(width)
        self.norm2 = nn.LayerNorm(width, eps=1e-5)
        self.feed = Feed(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        x = x + self.feed(self.norm2(x))
        return x


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.places = nn.Embedding(12, 16)
        self.blocks = nn.ModuleList([Block(16), Block(16)])
        self.norm = nn.LayerNorm(16)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]) + 2)
        for block in self.blocks:
            x = block(x)
        return torch.tanh(self.norm(x).mean(dim=1))


class ScaleNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * self.weight


class Rotary(nn.Module):
    def __init__(self, width, heads=2, groups=1):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.kv_proj = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def turn(self, x):
        half = self.size // 2
        rates = 1.0 / 100.0 ** (torch.arange(half) / half)
        angles = torch.arange(x.shape[2])[:, None] * rates
        sin, cos = angles.sin(), angles.cos()
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)

    def forward(self, x):
        count, length, width = x.shape
        q = self.q_proj(x).view(count, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv_proj(x).chunk(2, dim=-1)
        k = k.reshape(count, length, self.groups, self.size).transpose(1, 2)
        v = v.reshape(count, length, self.groups, self.size).transpose(1, 2)
        q, k = self.turn(q), self.turn(k)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(count, length, width))


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate_proj = nn.Linear(width, 2 * width, bias=False)
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before = ScaleNorm(width)
        self.mixer = Rotary(width)
        self.after = ScaleNorm(width)
        self.mlp = Gated(width)

    def forward(self, x):
        x = x + self.mixer(self.before(x))
        return x + 0.5 * self.mlp(self.after(x))


class Decoder(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.layers = nn.ModuleList([DecoderLayer(16), DecoderLayer(16)])
        self.last = ScaleNorm(16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens) * 4.0
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.last(x))
        return 30.0 * torch.tanh(logits / 30.0)


class Scan(nn.Module):
    """A state space layer, as Mamba has it, step by step."""

    def __init__(self, width, states=4):
        super().__init__()
        self.enter = nn.Linear(width, 2 * width)
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select = nn.Linear(width, width + 2 * states)
        self.logs = nn.Parameter(torch.ones(width, states))
        self.skip = nn.Parameter(torch.ones(width))
        self.leave = nn.Linear(width, width)
        self.states = states

    def forward(self, x):
        x, gate = self.enter(x).chunk(2, dim=-1)
        x = self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        x = F.silu(x)
        step, b, c = self.select(x).split([x.shape[-1], self.states, self.states], dim=-1)
        step = F.softplus(step)
        rate = -torch.exp(self.logs)
        state = torch.zeros(x.shape[0], x.shape[2], self.states)
        made = []
        for i in range(x.shape[1]):
            kept = torch.exp(step[:, i, :, None] * rate)
            state = kept * state + step[:, i, :, None] * b[:, i, None, :] * x[:, i, :, None]
            made.append((state * c[:, i, None, :]).sum(dim=-1))
        y = torch.stack(made, dim=1) + x * self.skip
        return self.leave(y * F.silu(gate))


class Selective(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scan(8)
        self.norm = nn.LayerNorm(8)
        self.second = Scan(8)

    def forward(self, x):
        x = x + self.first(x)
        return x + self.second(self.norm(x))


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.given = nn.Linear(width, 4 * width)
        self.state = nn.Linear(width, 4 * width)

    def forward(self, x, h, c):
        i, f, g, o = (self.given(x) + self.state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Recurrent(nn.Module):
    """An LSTM written out, and its last state read."""

    def __init__(self):
        super().__init__()
        self.cell = Cell(8)
        self.norm = nn.LayerNorm(8)
        self.read = nn.Linear(8, 5)

    def forward(self, x):
        h, c = torch.zeros(x.shape[0], 8), torch.zeros(x.shape[0], 8)
        for i in range(x.shape[1]):
            h, c = self.cell(x[:, i], h, c)
        return F.log_softmax(self.read(self.norm(h)), dim=-1)


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rise = nn.Linear(width, 2 * width)
        self.fall = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.fall(F.relu(self.rise(x)).square())


class Experts(nn.Module):
    def __init__(self, width=12, count=4, chosen=2):
        super().__init__()
        self.chosen = chosen
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList([Expert(width) for _ in range(count)])
        self.shared = Expert(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        flat = self.norm(x).reshape(-1, x.shape[-1])
        shares = torch.softmax(self.router(flat), dim=-1)
        share, which = torch.topk(shares, self.chosen, dim=-1)
        share = share / share.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            weight = (share * (which == number)).sum(dim=-1, keepdim=True)
            out = out + weight * expert(flat)
        out = 2.5 * out + self.shared(flat)
        return x + self.mix(out).reshape(x.shape)


class Stage(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.norm = nn.GroupNorm(2, outer, eps=1e-4)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(8, outer)

    def forward(self, x, t):
        h = F.silu(self.norm(self.conv1(x)))
        h = h + self.time(t)[:, :, None, None]
        return F.silu(self.conv2(h))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time1 = nn.Linear(8, 8)
        self.time2 = nn.Linear(8, 8)
        self.down1 = Stage(3, 4)
        self.down2 = Stage(4, 8)
        self.middle = Stage(8, 8)
        self.up = Stage(12, 4)
        self.last = nn.Conv2d(4, 3, 1)

    def forward(self, x, t):
        rates = torch.exp(-math.log(1000.0) * torch.arange(4) / 4)
        phases = t[:, None] * rates
        t = torch.cat([torch.sin(phases), torch.cos(phases)], dim=-1)
        t = self.time2(F.silu(self.time1(t)))
        one = self.down1(x, t)
        two = self.down2(F.avg_pool2d(one, 2), t)
        two = two + self.middle(two, t)
        two = F.interpolate(two, scale_factor=2, mode="nearest")
        return self.last(self.up(torch.cat([two, one], dim=1), t))


class Residual(nn.Module):
    def __init__(self, width, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps=1e-5)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps=1e-5)
        self.squeeze = nn.Linear(width, width)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        h = h * torch.sigmoid(self.squeeze(h.mean(dim=(2, 3))))[:, :, None, None]
        return F.relu(h + x)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.stage1 = Residual(8)
        self.stage2 = Residual(8)
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        x = F.leaky_relu(self.stem(x), 0.1)
        x = self.stage2(self.stage1(x))
        return self.head(F.max_pool2d(x, 2).flatten(2).mean(dim=-1))


class Mixer(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.tokens1 = nn.Linear(tokens, tokens)
        self.tokens2 = nn.Linear(tokens, tokens)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        h = self.norm1(x).transpose(1, 2)
        x = x + self.tokens2(F.gelu(self.tokens1(h))).transpose(1, 2)
        return x + self.scale * F.elu(self.wide(self.norm2(x)))


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, stride=4)
        self.mixers = nn.ModuleList([Mixer(9, 12), Mixer(9, 12)])
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for mixer in self.mixers:
            x = mixer(x)
        return self.head(self.norm(x).amax(dim=1))


class CrossAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)
        self.answer = nn.Linear(width, 2 * width)
        self.back = nn.Linear(width, width)

    def forward(self, x, memory, lengths):
        q = self.ask(x) * x.shape[-1] ** -0.5
        k, v = self.answer(memory).chunk(2, dim=-1)
        there = torch.arange(memory.shape[1])[None, :] < lengths[:, None]
        scores = torch.einsum("bqd,bkd->bqk", q, k)
        scores = torch.where(there[:, None, :], scores, torch.tensor(-1e9))
        return self.back(torch.einsum("bqk,bkd->bqd", scores.softmax(dim=-1), v))


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Linear(6, 12)
        self.target = nn.Linear(6, 12)
        self.cross1 = CrossAttention(12)
        self.norm1 = nn.LayerNorm(12)
        self.cross2 = CrossAttention(12)
        self.norm2 = nn.LayerNorm(12)

    def forward(self, x, y, lengths):
        memory = F.gelu(self.source(x), approximate="tanh")
        y = self.target(y)
        y = self.norm1(y + self.cross1(y, memory, lengths))
        return self.norm2(y + self.cross2(y, memory, lengths))


class Gru(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gates = nn.Linear(2 * width, 2 * width)
        self.new = nn.Linear(2 * width, width)

    def forward(self, x, h):
        z, r = torch.sigmoid(self.gates(torch.cat([x, h], dim=-1))).chunk(2, dim=-1)
        n = torch.tanh(self.new(torch.cat([x, r * h], dim=-1)))
        return (1.0 - z) * n + z * h


class Graph(nn.Module):
    """Messages along edges, mean over neighbours, and a gate that takes them up."""

    def __init__(self):
        super().__init__()
        self.message = nn.Linear(18, 8)
        self.update = Gru(8)
        self.enter = nn.Linear(8, 8)
        self.leave = nn.Linear(8, 4)

    def forward(self, x, edges):
        start, end = edges
        h = torch.tanh(self.enter(x))
        count = torch.zeros(x.shape[0]).index_add(0, end, torch.ones(end.shape[0]))
        for _ in range(2):
            away = (h[start] - h[end]).norm(dim=-1, keepdim=True)
            given = torch.cat([h[start], h[end], away, away.exp().reciprocal()], dim=-1)
            sent = F.relu(self.message(given))
            got = torch.zeros_like(h).index_add(0, end, sent)
            h = self.update(got / count.clamp(min=1.0)[:, None], h)
        return F.normalize(self.leave(h), dim=-1)


class Windows(nn.Module):
    """Attention in windows that are shifted, with a table of biases, as Swin has it."""

    def __init__(self, width, shift):
        super().__init__()
        self.shift = shift
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.table = nn.Parameter(torch.zeros(9))

    def forward(self, x):
        b, h, w, width = x.shape
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), dims=(1, 2))
        y = y.view(b, h // 2, 2, w // 2, 2, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, width)
        q, k, v = self.qkv(y).chunk(3, dim=-1)
        rows, columns = torch.arange(4) // 2, torch.arange(4) % 2
        index = 3 * (rows[:, None] - rows + 1) + columns[:, None] - columns + 1
        scores = q @ k.transpose(1, 2) * 0.3 + self.table[index]
        y = scores.softmax(dim=-1) @ v
        y = y.view(b, h // 2, w // 2, 2, 2, width).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, width)
        return x + self.proj(torch.roll(y, (self.shift, self.shift), dims=(1, 2)))


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(3, 8)
        self.first = Windows(8, 0)
        self.second = Windows(8, 1)
        self.merge = nn.Linear(32, 8, bias=False)

    def forward(self, x):
        x = self.second(self.first(self.enter(x)))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], dim=-1)
        return self.merge(x).mean(dim=(1, 2))


class Codes(nn.Module):
    """A small speech encoder with nearest codes, as a vector quantiser has them."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(2, 8, 5, stride=2, padding=2)
        self.conv2 = nn.Conv1d(8, 8, 3, dilation=2, padding=2)
        self.codes = nn.Parameter(torch.zeros(10, 8))
        self.up = nn.ConvTranspose1d(8, 2, 4, stride=2, padding=1)

    def forward(self, x):
        x = (x - x.mean(dim=-1, keepdim=True)) / (x.var(dim=-1, keepdim=True) + 1e-5).sqrt()
        h = F.softplus(self.conv1(x), beta=2.0)
        h = h + F.hardswish(self.conv2(h))
        flat = h.transpose(1, 2)
        far = (flat.unsqueeze(2) - self.codes).pow(2).sum(dim=-1)
        soft = torch.softmax(-far / 0.7, dim=-1) @ self.codes
        return self.up(soft.transpose(1, 2)) + 0.1 * x


def _tokens(g: torch.Generator) -> Any:
    return (torch.randint(0, 30, (2, 8), generator=g),)


def _numbers(*shape: int) -> Callable[[torch.Generator], Any]:
    return lambda g: (torch.randn(shape, generator=g),)


MODELS: dict[str, tuple[type[nn.Module], Callable[[torch.Generator], Any]]] = {
    "encoder": (Encoder, _tokens),
    "decoder": (Decoder, _tokens),
    "scan": (Selective, _numbers(2, 6, 8)),
    "lstm": (Recurrent, _numbers(2, 6, 8)),
    "experts": (Experts, _numbers(2, 6, 12)),
    "unet": (UNet, lambda g: (torch.randn(2, 3, 8, 8, generator=g), torch.tensor([3.0, 40.0]))),
    "images": (Images, _numbers(2, 3, 16, 16)),
    "mixer": (Patches, _numbers(2, 3, 12, 12)),
    "cross": (
        Seq2Seq,
        lambda g: (torch.randn(2, 7, 6, generator=g), torch.randn(2, 5, 6, generator=g), torch.tensor([7, 4])),
    ),
    "graph": (Graph, lambda g: (torch.randn(6, 8, generator=g), torch.randint(0, 6, (2, 14), generator=g))),
    "swin": (Swin, _numbers(2, 4, 8, 3)),
    "codes": (Codes, _numbers(2, 2, 16)),
}


def built(model: type[nn.Module]) -> nn.Module:
    """Return a model in evaluation mode, whose weights are all different: no norm has ones, no bias zeros."""
    torch.manual_seed(5)
    made = model()
    for name, weight in made.named_parameters():
        vector = weight.dim() < 2
        center = 1.0 if vector and ("norm" in name or name.endswith("weight")) else 0.0
        nn.init.normal_(weight, center, 0.3 if vector else 1.3 / math.sqrt(weight[0].numel()))
    for name, buffer in made.named_buffers():
        if name.endswith("running_mean"):
            nn.init.normal_(buffer, 0.0, 0.3)
        elif name.endswith("running_var"):
            nn.init.uniform_(buffer, 0.5, 1.5)
    return made.eval()

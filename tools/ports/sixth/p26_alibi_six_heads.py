"""ml-explore/mlx#3071: ALiBi slopes are one geometric sequence also when the number of heads is no power of two.

With 6 heads the paper's code takes the 4 slopes of 4 heads and then every other slope of 8 heads.  A bidirectional
encoder for event sequences with per-head distance penalties; the port keeps the slopes as a buffer and uses batch_first
fused projections.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def get_slopes(heads: int) -> list[float]:
    def power_of_two(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_two(closest) + get_slopes(2 * closest)[0::2][: heads - closest]


class AlibiAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim)
        self.to_kv = nn.Linear(dim, 2 * dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q = self.to_q(x).reshape(b, n, self.heads, -1).permute(0, 2, 1, 3)
        k, v = self.to_kv(x).reshape(b, n, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        position = torch.arange(n)
        distance = -(position[None, :] - position[:, None]).abs()
        bias = torch.tensor(get_slopes(self.heads)).view(-1, 1, 1) * distance
        attn = torch.softmax(q @ k.mT * (d // self.heads) ** -0.5 + bias, dim=-1)
        return self.to_out((attn @ v).permute(0, 2, 1, 3).reshape(b, n, d))


class EventLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention = AlibiAttention(dim, heads)
        self.norm1 = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


class EventEncoder(nn.Module):
    def __init__(self, events: int = 30, dim: int = 24, heads: int = 6, depth: int = 2) -> None:
        super().__init__()
        self.events = nn.Embedding(events, dim)
        self.amount = nn.Linear(1, dim)
        self.layers = nn.ModuleList(EventLayer(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, 2)

    def forward(self, events: Tensor, amounts: Tensor) -> Tensor:
        x = self.events(events) + self.amount(amounts.unsqueeze(-1))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class ALiBi(nn.Module):
    def __init__(self, num_heads: int, handle_any_count: bool) -> None:
        super().__init__()
        slopes = self.slopes_for_any(num_heads) if handle_any_count else self.geometric(num_heads)
        self.register_buffer("slope", slopes.view(-1, 1, 1))

    @staticmethod
    def geometric(num_heads: int) -> Tensor:
        return 2.0 ** (-8.0 / num_heads * torch.arange(1, num_heads + 1))

    @classmethod
    def slopes_for_any(cls, num_heads: int) -> Tensor:
        base = 1 << (num_heads.bit_length() - 1)
        slopes = cls.geometric(base)
        if base < num_heads:
            slopes = torch.cat([slopes, cls.geometric(2 * base)[::2][: num_heads - base]])
        return slopes

    def forward(self, scores: Tensor, offset: int = 0) -> Tensor:
        rows = torch.arange(offset, offset + scores.shape[-2]).unsqueeze(1)
        cols = torch.arange(scores.shape[-1]).unsqueeze(0)
        return scores - self.slope * (rows - cols).abs()


class MultiHeadAttention(nn.Module):
    def __init__(self, dims: int, num_heads: int, handle_any_count: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(dims, 3 * dims)
        self.out_proj = nn.Linear(dims, dims)
        self.alibi = ALiBi(num_heads, handle_any_count)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.qkv_proj(x).unflatten(-1, (3, self.num_heads, -1)).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", queries, keys) / math.sqrt(queries.shape[-1])
        weights = F.softmax(self.alibi(scores), dim=-1)
        return self.out_proj(torch.einsum("bhqk,bkhd->bqhd", weights, values).flatten(2))


class MlxEncoder(nn.Module):
    def __init__(self, source: EventEncoder, handle_any_count: bool) -> None:
        super().__init__()
        dims = source.head.in_features
        heads = source.layers[0].attention.heads
        depth = len(source.layers)
        self.embedding = nn.Embedding(*source.events.weight.shape)
        self.amount_weight = nn.Parameter(source.amount.weight.detach().squeeze(1))
        self.amount_bias = nn.Parameter(source.amount.bias.detach().clone())
        self.attentions = nn.ModuleList(MultiHeadAttention(dims, heads, handle_any_count) for _ in range(depth))
        self.ln1 = nn.ModuleList(nn.LayerNorm(dims) for _ in range(depth))
        self.ln2 = nn.ModuleList(nn.LayerNorm(dims) for _ in range(depth))
        self.linear1 = nn.ModuleList(nn.Linear(dims, 2 * dims) for _ in range(depth))
        self.linear2 = nn.ModuleList(nn.Linear(2 * dims, dims) for _ in range(depth))
        self.classify = nn.Linear(dims, 2)
        self.embedding.load_state_dict(source.events.state_dict())
        self.classify.load_state_dict(source.head.state_dict())
        for i, layer in enumerate(source.layers):
            att = layer.attention.state_dict()
            self.attentions[i].qkv_proj.load_state_dict(
                {kind: torch.cat([att[f"to_q.{kind}"], att[f"to_kv.{kind}"]]) for kind in ("weight", "bias")}
            )
            self.attentions[i].out_proj.load_state_dict(layer.attention.to_out.state_dict())
            self.ln1[i].load_state_dict(layer.norm1.state_dict())
            self.ln2[i].load_state_dict(layer.norm2.state_dict())
            self.linear1[i].load_state_dict(layer.feed_forward[0].state_dict())
            self.linear2[i].load_state_dict(layer.feed_forward[2].state_dict())

    def forward(self, events: Tensor, amounts: Tensor) -> Tensor:
        x = self.embedding(events) + amounts[..., None] * self.amount_weight + self.amount_bias
        for i, attention in enumerate(self.attentions):
            x = self.ln1[i](x + attention(x))
            x = self.ln2[i](x + self.linear2[i](F.gelu(self.linear1[i](x))))
        return self.classify(x)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(126)
    original = EventEncoder().eval()
    port = MlxEncoder(original, handle_any_count=fixed).eval()
    return original, port, (torch.randint(0, 30, (2, 14)), torch.randn(2, 14))


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())

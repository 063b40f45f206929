"""ViT written again: patches cut out by hand, keys before queries, norms without modules of their own.

The steps of a body that faults replace are methods of their own: ``plant`` in ``case`` exchanges one on one module.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["TinyVit", "vit"]


class Patches(nn.Module):
    """Cut into squares, flatten, project: what a convolution with stride does."""

    def __init__(self, channels: int, size: int, width: int, count: int) -> None:
        super().__init__()
        self.size = size
        self.project = nn.Linear(channels * size * size, width)
        self.start = nn.Parameter(torch.zeros(width))
        self.where = nn.Parameter(torch.zeros(count + 1, width))

    def cut(self, image: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, patches, channels · size · size), row by row."""
        size = self.size
        return image.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)

    def started(self, x: Tensor) -> Tensor:
        return torch.cat([self.start.expand(len(x), 1, -1), x], dim=1)

    def forward(self, image: Tensor) -> Tensor:
        return self.started(self.project(self.cut(image))) + self.where


class Look(nn.Module):
    """Attention with keys, queries and values in one projection, in this order."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.kqv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.softmax(torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5, dim=-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v)

    def forward(self, x: Tensor) -> Tensor:
        k, q, v = self.kqv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return self.join(self.attention(q, k, v).flatten(2))


class Gain(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))


class Step(nn.Module):
    """Norm, attention, norm, network; the norms are functional calls with one epsilon."""

    def __init__(self, width: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.n1, self.n2 = Gain(width), Gain(width)
        self.look = Look(width, heads)
        self.a, self.b = nn.Linear(width, inner), nn.Linear(inner, width)

    def norm(self, x: Tensor, gain: Gain) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], gain.g, gain.b, self.eps)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.look(self.norm(x, self.n1))
        return x + self.b(F.gelu(self.a(self.norm(x, self.n2))))


class TinyVit(nn.Module):
    """``transformers.ViTModel`` with its pooler, returning a tuple."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        count = (config.image_size // config.patch_size) ** 2
        self.patches = Patches(config.num_channels, config.patch_size, width, count)
        self.steps = nn.Sequential(
            *(
                Step(width, config.num_attention_heads, config.intermediate_size, config.layer_norm_eps)
                for _ in range(config.num_hidden_layers)
            )
        )
        self.post = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.pool = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def first(self, x: Tensor) -> Tensor:
        return x[:, 0]

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.post(self.steps(self.patches(pixel_values)))
        return x, self.pool(self.first(x))


def vit(source: Any) -> TinyVit:
    """The port of a ``ViTModel``, with its weights."""
    model, embeddings = TinyVit(source.config), source.embeddings
    with torch.no_grad():
        projection = embeddings.patch_embeddings.projection
        model.patches.project.weight.copy_(projection.weight.flatten(1))
        model.patches.project.bias.copy_(projection.bias)
        model.patches.start.copy_(embeddings.cls_token[0, 0])
        model.patches.where.copy_(embeddings.position_embeddings[0])
        for step, layer in zip(model.steps, source.layers):
            own = layer.attention
            for part in ("weight", "bias"):
                stacked = torch.cat([getattr(linear, part) for linear in (own.k_proj, own.q_proj, own.v_proj)])
                getattr(step.look.kqv, part).copy_(stacked)
            for to, old in ((step.look.join, own.o_proj), (step.a, layer.mlp.fc1), (step.b, layer.mlp.fc2)):
                to.weight.copy_(old.weight)
                to.bias.copy_(old.bias)
            for gain, norm in ((step.n1, layer.layernorm_before), (step.n2, layer.layernorm_after)):
                gain.g.copy_(norm.weight)
                gain.b.copy_(norm.bias)
        for to, old in ((model.post, source.layernorm), (model.pool[0], source.pooler.dense)):
            to.weight.copy_(old.weight)
            to.bias.copy_(old.bias)
    return model.eval()

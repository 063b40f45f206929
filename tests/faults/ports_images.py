"""Convolutional, windowed and recurrent models written again: channels last, norms folded, loops over time by hand."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["convnext", "encoder", "resnet", "tagger", "unet"]


class NextBlock(nn.Module):
    """A block of ConvNeXt whose pointwise layers are convolutions: channels stay in front."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        width = layer.dwconv.out_channels
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.depthwise.load_state_dict(layer.dwconv.state_dict())
        self.gain, self.shift = (nn.Parameter(p.detach().clone()) for p in layer.layernorm.parameters())
        self.expand, self.reduce = (
            nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1),
        )  # fmt: skip
        with torch.no_grad():
            for mine, other in ((self.expand, layer.pwconv1), (self.reduce, layer.pwconv2)):
                mine.weight.copy_(other.weight[:, :, None, None])
                mine.bias.copy_(other.bias)
        self.gamma = nn.Parameter(layer.layer_scale_parameter.detach()[:, None, None].clone())

    def norm(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).square().mean(1, keepdim=True)
        x = (x - mean) * torch.rsqrt(variance + 1e-6)
        return self.gain[:, None, None] * x + self.shift[:, None, None]

    def forward(self, x: Tensor) -> Tensor:
        y = self.reduce(F.gelu(self.expand(self.norm(self.depthwise(x)))))
        return x + self.gamma * y


class Next(nn.Module):
    """``ConvNextModel``."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        patches = source.embeddings
        self.stem = nn.Conv2d(3, patches.patch_embeddings.out_channels, 4, stride=4)
        self.stem.load_state_dict(patches.patch_embeddings.state_dict())
        down, self.trunk = source.encoder.stages[1].downsampling_layer, nn.ModuleList()
        self.norms = nn.ModuleList()
        for norm in (patches.layernorm, down[0], source.layernorm):
            self.norms.append(nn.LayerNorm(norm.weight.shape[0], eps=norm.eps))
            self.norms[-1].load_state_dict(norm.state_dict())
        self.between = nn.Conv2d(8, 16, 2, stride=2)
        self.between.load_state_dict(down[1].state_dict())
        for stage in source.encoder.stages:
            self.trunk.append(nn.Sequential(*[NextBlock(layer) for layer in stage.layers]))

    def normed(self, x: Tensor, which: int) -> Tensor:
        return self.norms[which](x.movedim(1, -1)).movedim(-1, 1)

    def pool(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk[0](self.normed(self.stem(pixel_values), 0))
        x = self.trunk[1](self.between(self.normed(x, 1)))
        return x, self.norms[2](self.pool(x))


def convnext(source: Any) -> Next:
    """The port of a ``ConvNextModel``, with its weights."""
    return Next(source).eval()


class Residual(nn.Module):
    """A bottleneck of ResNet; convolutions and norms as functions of parameters in lists."""

    def __init__(self, layer: Any, stride: int) -> None:
        super().__init__()
        convs = [part.convolution for part in layer.layer] + ([layer.shortcut.convolution] if stride else [])
        norms = [part.normalization for part in layer.layer] + ([layer.shortcut.normalization] if stride else [])
        self.kernels = nn.ParameterList([conv.weight.detach().clone() for conv in convs])
        for name in ("weight", "bias", "running_mean", "running_var"):
            for i, norm in enumerate(norms):
                self.register_buffer(f"{name}_{i}", getattr(norm, name).detach().clone())
        self.strides, self.eps = [1, stride or 1, 1, stride], 1e-5

    def conv(self, x: Tensor, which: int) -> Tensor:
        kernel = self.kernels[which]
        return F.conv2d(x, kernel, stride=self.strides[which], padding=kernel.shape[-1] // 2)

    def norm(self, x: Tensor, which: int) -> Tensor:
        gain, shift, mean, variance = (
            getattr(self, f"{name}_{which}")[:, None, None]
            for name in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / torch.sqrt(variance + self.eps) * gain + shift

    def branch(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x, 0), 0).clamp(min=0)
        x = self.norm(self.conv(x, 1), 1).clamp(min=0)
        return self.norm(self.conv(x, 2), 2)

    def beside(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x, 3), 3) if self.strides[3] else x

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.beside(x) + self.branch(x))


class Res(nn.Module):
    """``ResNetModel``."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        stem = source.embedder.embedder
        self.first = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.first[0].load_state_dict(stem.convolution.state_dict())
        self.first[1].load_state_dict(stem.normalization.state_dict())
        stages = source.encoder.stages
        self.rest = nn.Sequential(
            Residual(stages[0].layers[0], 1), Residual(stages[1].layers[0], 2), Residual(stages[1].layers[1], 0)
        )

    def shrink(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=float("-inf")), 3, 2)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.rest(self.shrink(self.first(pixel_values)))
        return x, x.mean(dim=(2, 3), keepdim=True)


def resnet(source: Any) -> Res:
    """The port of a ``ResNetModel``, with its weights."""
    return Res(source).eval()


class Conv(nn.Module):
    """Convolution with its batch norm folded into it, and activation."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_var is not None and norm.running_mean is not None and conv.bias is not None
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        self.kernel = nn.Parameter(conv.weight.detach() * scale.detach()[:, None, None, None])
        self.offset = nn.Parameter(((conv.bias - norm.running_mean) * scale + norm.bias).detach())

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel, self.offset, padding=1).relu()


class Hourglass(nn.Module):
    """The U-Net, folded."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        names = ("inc", "down1", "down2", "dec1", "dec2")
        pairs = [getattr(source, name) for name in names]
        self.twice = nn.ModuleList(
            [nn.Sequential(Conv(pair.conv1, pair.bn1), Conv(pair.conv2, pair.bn2)) for pair in pairs]
        )
        self.grow = nn.Parameter(source.up1.weight.detach().clone())
        self.grown = nn.Parameter(source.up1.bias.detach().clone())
        self.norm, self.last = nn.GroupNorm(4, 8), nn.Conv2d(8, 2, 1)
        self.norm.load_state_dict(source.gn.state_dict())
        self.last.load_state_dict(source.out.state_dict())

    def half(self, x: Tensor) -> Tensor:
        return x.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(-2, -1))

    def join(self, above: Tensor, kept: Tensor) -> Tensor:
        return torch.cat([above, kept], dim=1)

    def larger(self, x: Tensor) -> Tensor:
        return F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 2), mode="bilinear")

    def forward(self, image: Tensor) -> Tensor:
        one = self.twice[0](image)
        two = self.twice[1](self.half(one))
        x = self.twice[2](self.half(two))
        x = self.twice[3](self.join(F.conv_transpose2d(x, self.grow, self.grown, stride=2), two))
        x = self.twice[4](self.join(self.larger(x), one))
        return self.last(self.norm(x)).sigmoid()


def unet(source: Any) -> Hourglass:
    """The port of the U-Net, with its weights."""
    return Hourglass(source).eval()


class Walk(nn.Module):
    """One direction of an LSTM, word by word."""

    def __init__(self, lstm: nn.LSTM, backwards: bool) -> None:
        super().__init__()
        end = "_l0_reverse" if backwards else "_l0"
        self.backwards, self.size = backwards, lstm.hidden_size
        self.into, self.again = nn.Linear(12, 40), nn.Linear(10, 40)
        with torch.no_grad():
            for mine, name in ((self.into, "ih"), (self.again, "hh")):
                mine.weight.copy_(getattr(lstm, f"weight_{name}{end}"))
                mine.bias.copy_(getattr(lstm, f"bias_{name}{end}"))

    def step(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell

    def forward(self, x: Tensor) -> Tensor:
        state = cell = x.new_zeros(x.shape[0], self.size)
        order = range(x.shape[1])[::-1] if self.backwards else range(x.shape[1])
        states: list[Any] = [None] * x.shape[1]
        for at in order:
            state, cell = self.step(self.into(x[:, at]) + self.again(state), cell)
            states[at] = state
        return torch.stack(states, dim=1)


class HandTagger(nn.Module):
    """The tagger with its own recurrence."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.words = source.embed
        self.forth, self.back = Walk(source.lstm, False), Walk(source.lstm, True)
        self.final = nn.Sequential(source.norm, source.tags)

    def joined(self, x: Tensor) -> Tensor:
        return torch.cat([self.forth(x), self.back(x)], dim=-1)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.final(self.joined(self.words(tokens)))
        return scores - scores.logsumexp(-1, keepdim=True)


def tagger(source: Any) -> HandTagger:
    """The port of the tagger, with its weights."""
    return HandTagger(source).eval()


class HandLayer(nn.Module):
    """What ``nn.TransformerEncoderLayer`` does, norms first."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        own = layer.self_attn
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        with torch.no_grad():
            for mine, weight, bias in zip(
                (self.q, self.k, self.v), own.in_proj_weight.chunk(3), own.in_proj_bias.chunk(3)
            ):
                mine.weight.copy_(weight)
                mine.bias.copy_(bias)
        self.out, self.one, self.two = own.out_proj, layer.norm1, layer.norm2
        self.up, self.down = layer.linear1, layer.linear2

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (4, 4)).transpose(1, 2)

    def attend(self, x: Tensor, padding: Tensor) -> Tensor:
        q, k, v = (self.heads(each(x)) for each in (self.q, self.k, self.v))
        scores = (q * 0.5 @ k.transpose(-1, -2)).masked_fill(padding[:, None, None], float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = x + self.attend(self.one(x), padding)
        return x + self.down(F.gelu(self.up(self.two(x))))


class HandEncoder(nn.Module):
    """The encoder by hand."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.words, self.places = source.embed, source.embed_places
        self.floors = nn.ModuleList([HandLayer(layer) for layer in source.encoder.layers])
        self.top, self.answer = source.encoder.norm, source.classify

    def pooled(self, x: Tensor, padding: Tensor) -> Tensor:
        lengths = (~padding).sum(1, keepdim=True)
        return torch.einsum("bts,bt->bs", x, (~padding).float()) / lengths

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        x = self.words(tokens) * 4 + self.places.weight[: tokens.shape[1]]
        for floor in self.floors:
            x = floor(x, padding)
        return self.answer(self.pooled(self.top(x), padding))


def encoder(source: Any) -> HandEncoder:
    """The port of the encoder, with its weights."""
    return HandEncoder(source).eval()

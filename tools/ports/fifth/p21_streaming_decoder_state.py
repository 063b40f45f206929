"""0xShug0/audio.cpp#623: a causal audio decoder was called statelessly for every patch of the stream.

The convolution history started from zeros at each patch boundary, which is heard as clicks.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Snake(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.alpha * x).pow(2) / (self.alpha + 1e-9)


class CausalConv1d(nn.Conv1d):
    def forward(self, x: Tensor) -> Tensor:
        left = (self.kernel_size[0] - 1) * self.dilation[0]
        return super().forward(F.pad(x, (left, 0)))


class CausalTransposeConv1d(nn.ConvTranspose1d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[..., : x.shape[-1] * self.stride[0]]


class ResidualUnit(nn.Module):
    def __init__(self, dim: int, dilation: int) -> None:
        super().__init__()
        self.snake1 = Snake(dim)
        self.conv1 = CausalConv1d(dim, dim, 3, dilation=dilation)
        self.snake2 = Snake(dim)
        self.conv2 = nn.Conv1d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.snake2(self.conv1(self.snake1(x))))


class DecoderBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.snake = Snake(cin)
        self.up = CausalTransposeConv1d(cin, cout, 2 * stride, stride)
        self.res1 = ResidualUnit(cout, 1)
        self.res2 = ResidualUnit(cout, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.res2(self.res1(self.up(self.snake(x))))


class AudioDecoder(nn.Module):
    def __init__(self, latent: int = 6, dim: int = 16) -> None:
        super().__init__()
        self.conv_in = CausalConv1d(latent, dim, 5)
        self.block1 = DecoderBlock(dim, dim // 2, 2)
        self.block2 = DecoderBlock(dim // 2, dim // 4, 3)
        self.conv_out = CausalConv1d(dim // 4, 1, 5)

    def forward(self, z: Tensor) -> Tensor:
        return torch.tanh(self.conv_out(self.block2(self.block1(self.conv_in(z)))))


State = dict[str, Tensor]


class StreamConv(nn.Module):
    """Causal convolution that takes its left context from the stream state."""

    def __init__(self, name: str, cin: int, cout: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.name = name
        self.history = (kernel - 1) * dilation
        self.conv = nn.Conv1d(cin, cout, kernel, dilation=dilation)

    def forward(self, x: Tensor, state: State) -> Tensor:
        if self.name not in state:
            state[self.name] = x.new_zeros(*x.shape[:2], self.history)
        x = torch.cat([state[self.name], x], dim=-1)
        state[self.name] = x[..., x.shape[-1] - self.history :]
        return self.conv(x)


class StreamUpsample(nn.Module):
    """Kernel 2s, stride s: every output sample needs the current and the previous frame."""

    def __init__(self, name: str, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.name, self.stride = name, stride
        self.deconv = nn.ConvTranspose1d(cin, cout, 2 * stride, stride)

    def forward(self, x: Tensor, state: State) -> Tensor:
        previous = state.get(self.name, torch.zeros_like(x[..., :1]))
        state[self.name] = x[..., -1:]
        out = self.deconv(torch.cat([previous, x], dim=-1))
        return out[..., self.stride : -self.stride]


class StreamBlock(nn.Module):
    def __init__(self, name: str, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.alphas = nn.ParameterList([torch.ones(c, 1) for c in (cin, cout, cout, cout, cout)])
        self.up = StreamUpsample(f"{name}.up", cin, cout, stride)
        self.dilated = nn.ModuleList([StreamConv(f"{name}.dil{d}", cout, cout, 3, d) for d in (1, 3)])
        self.mix = nn.ModuleList([nn.Linear(cout, cout) for _ in range(2)])

    @staticmethod
    def periodic(x: Tensor, alpha: Tensor) -> Tensor:
        return x + torch.sin(x * alpha).square() * (alpha + 1e-9).reciprocal()

    def forward(self, x: Tensor, state: State) -> Tensor:
        x = self.up(self.periodic(x, self.alphas[0]), state)
        for i in range(2):
            h = self.dilated[i](self.periodic(x, self.alphas[1 + 2 * i]), state)
            h = self.periodic(h, self.alphas[2 + 2 * i])
            x = x + self.mix[i](h.mT).mT
        return x


class StreamingDecoder(nn.Module):
    def __init__(self, latent: int = 6, dim: int = 16, patch: int = 4, stateful: bool = True) -> None:
        super().__init__()
        self.patch, self.stateful = patch, stateful
        self.first = StreamConv("first", latent, dim, 5)
        self.blocks = nn.ModuleList([StreamBlock("b1", dim, dim // 2, 2), StreamBlock("b2", dim // 2, dim // 4, 3)])
        self.last = StreamConv("last", dim // 4, 1, 5)

    def decode(self, frames: Tensor, state: State) -> Tensor:
        x = self.first(frames, state)
        for block in self.blocks:
            x = block(x, state)
        return self.last(x, state).tanh()

    def forward(self, z: Tensor) -> Tensor:
        state: State = {}
        audio = []
        for frames in z.split(self.patch, dim=-1):
            audio.append(self.decode(frames, state if self.stateful else {}))
        return torch.cat(audio, dim=-1)


@torch.no_grad()
def convert(src: AudioDecoder, dst: StreamingDecoder) -> None:
    pairs: list[tuple[nn.Module, nn.Module]] = [(src.conv_in, dst.first.conv), (src.conv_out, dst.last.conv)]
    for a, b in zip((src.block1, src.block2), dst.blocks):
        pairs += [(a.up, b.up.deconv), (a.res1.conv1, b.dilated[0].conv), (a.res2.conv1, b.dilated[1].conv)]
        pairs += [(a.res1.conv2, b.mix[0]), (a.res2.conv2, b.mix[1])]
        for snake, alpha in zip((m for m in a.modules() if isinstance(m, Snake)), b.alphas):
            alpha.copy_(snake.alpha[0])
    for a, b in pairs:
        b.weight.copy_(a.weight.view_as(b.weight))
        b.bias.copy_(a.bias)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(623)
    original = AudioDecoder()
    for m in original.modules():
        if isinstance(m, Snake):
            nn.init.uniform_(m.alpha, 0.5, 1.5)
    port = StreamingDecoder(stateful=fixed)
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 6, 8),)

"""qqwweee/keras-yolo3#451: batch norm epsilon is the Keras default 1e-3, darknet weights were trained with 1e-5.

Channels whose running variance is small are damped a little more in every layer.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Convolutional(nn.Module):
    """darknet order of parameters: biases, scales, rolling mean, rolling variance, weights."""

    def __init__(self, cin: int, filters: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.pad = stride, size // 2
        self.biases = nn.Parameter(torch.zeros(filters))
        self.scales = nn.Parameter(torch.ones(filters))
        self.register_buffer("rolling_mean", torch.zeros(filters))
        self.register_buffer("rolling_variance", torch.ones(filters))
        self.weights = nn.Parameter(torch.randn(filters, cin, size, size) / (cin * size * size) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.weights, None, self.stride, self.pad)
        x = (x - self.rolling_mean.view(1, -1, 1, 1)) / torch.sqrt(self.rolling_variance + 0.00001).view(1, -1, 1, 1)
        x = x * self.scales.view(1, -1, 1, 1) + self.biases.view(1, -1, 1, 1)
        return torch.where(x > 0, x, 0.1 * x)


class DarknetBody(nn.Module):
    def __init__(self, anchors: int = 3, classes: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                Convolutional(3, 8, 3),
                Convolutional(8, 12, 3, 2),
                Convolutional(12, 6, 1),
                Convolutional(6, 12, 3),
                Convolutional(12, 16, 3, 2),
                Convolutional(16, 8, 1),
                Convolutional(8, 16, 3),
            ]
        )
        self.shortcuts = {3: 1, 6: 4}
        self.yolo = nn.Conv2d(16, anchors * (5 + classes), 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i in self.shortcuts:
                x = x + outputs[self.shortcuts[i]]
            outputs.append(x)
        return self.yolo(x)


class DarknetConv2D(nn.Module):
    """NHWC in and out, top-left padding for stride two, (h, w, in, out) kernel."""

    def __init__(self, cin: int, filters: int, size: int, strides: int = 1) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(size, size, cin, filters))
        self.strides = strides

    def forward(self, x: Tensor) -> Tensor:
        half = self.kernel.shape[0] // 2
        x = F.pad(x.permute(0, 3, 1, 2), (half, half, half, half))
        return F.conv2d(x, self.kernel.permute(3, 2, 0, 1), stride=self.strides).permute(0, 2, 3, 1)


class BatchNormalization(nn.Module):
    def __init__(self, channels: int, epsilon: float = 1e-3) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gamma = nn.Parameter(torch.empty(channels))
        self.beta = nn.Parameter(torch.empty(channels))
        self.register_buffer("moving_mean", torch.empty(channels))
        self.register_buffer("moving_variance", torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        inv = self.gamma * torch.rsqrt(self.moving_variance + self.epsilon)
        return x * inv + (self.beta - self.moving_mean * inv)


class DarknetConvBnLeaky(nn.Module):
    def __init__(self, cin: int, filters: int, size: int, strides: int = 1, **bn_args: float) -> None:
        super().__init__()
        self.conv2d = DarknetConv2D(cin, filters, size, strides)
        self.batch_normalization = BatchNormalization(filters, **bn_args)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.batch_normalization(self.conv2d(x)), 0.1)


class ResblockBody(nn.Module):
    def __init__(self, cin: int, filters: int, **bn_args: float) -> None:
        super().__init__()
        self.down = DarknetConvBnLeaky(cin, filters, 3, 2, **bn_args)
        self.squeeze = DarknetConvBnLeaky(filters, filters // 2, 1, **bn_args)
        self.expand = DarknetConvBnLeaky(filters // 2, filters, 3, **bn_args)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        return x + self.expand(self.squeeze(x))


class KerasYolo(nn.Module):
    def __init__(self, **bn_args: float) -> None:
        super().__init__()
        self.entry = DarknetConvBnLeaky(3, 8, 3, **bn_args)
        self.body = nn.Sequential(ResblockBody(8, 12, **bn_args), ResblockBody(12, 16, **bn_args))
        self.output = nn.Linear(16, 21)

    def forward(self, image: Tensor) -> Tensor:
        x = self.body(self.entry(image.permute(0, 2, 3, 1)))
        return self.output(x).permute(0, 3, 1, 2)


@torch.no_grad()
def convert(src: DarknetBody, dst: KerasYolo) -> None:
    targets = [m for m in dst.modules() if isinstance(m, DarknetConvBnLeaky)]
    for layer, target in zip(src.layers, targets):
        bn = target.batch_normalization
        target.conv2d.kernel.copy_(layer.weights.permute(2, 3, 1, 0))
        bn.gamma.copy_(layer.scales)
        bn.beta.copy_(layer.biases)
        bn.moving_mean.copy_(layer.rolling_mean)
        bn.moving_variance.copy_(layer.rolling_variance)
    dst.output.weight.copy_(src.yolo.weight.flatten(1))
    dst.output.bias.copy_(src.yolo.bias)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(451)
    original = DarknetBody()
    for layer in original.layers:
        layer.rolling_mean.normal_(0, 0.05)
        layer.rolling_variance.uniform_(0.02, 0.4)
        nn.init.uniform_(layer.scales, 0.3, 0.8)
        nn.init.normal_(layer.biases, std=0.1)
    port = KerasYolo(epsilon=1e-5) if fixed else KerasYolo()
    convert(original, port)
    return original.eval(), port.eval(), (torch.rand(2, 3, 16, 16),)

"""pytorch/vision#191: the bottleneck strides in its 3x3 convolution, the Caffe ResNet weights in the first 1x1.

All kernels fit and every shape is the same in both variants.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Scale(nn.Module):
    """Caffe keeps the affine part of batch norm in a layer of its own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma[:, None, None] + self.beta[:, None, None]


class Unit(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(cout, affine=False)
        self.scale = Scale(cout)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(self.norm(self.conv(x)))


class ResBlock(nn.Module):
    def __init__(self, cin: int, mid: int, stride: int, project: bool) -> None:
        super().__init__()
        self.branch2a = Unit(cin, mid, 1, stride)
        self.branch2b = Unit(mid, mid, 3)
        self.branch2c = Unit(mid, 2 * mid, 1)
        self.branch1 = Unit(cin, 2 * mid, 1, stride) if project else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch2b(self.branch2a(x).relu()).relu()
        return (self.branch1(x) + self.branch2c(y)).relu()


class CaffeResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Unit(3, 8, 7, 2)
        self.res2a = ResBlock(8, 4, 1, True)
        self.res3a = ResBlock(8, 6, 2, True)
        self.res4a = ResBlock(12, 8, 2, True)
        self.fc = nn.Linear(16, 5)

    def forward(self, data: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(data).relu(), 3, 2, padding=1)
        x = self.res4a(self.res3a(self.res2a(x)))
        return self.fc(F.avg_pool2d(x, x.shape[-2:]).flatten(1))


class Bottleneck(nn.Module):
    expansion = 2

    def __init__(self, inplanes: int, planes: int, stride: int, downsample: nn.Module | None, caffe: bool) -> None:
        super().__init__()
        first, second = (stride, 1) if caffe else (1, stride)
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=1, stride=first, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return torch.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers: tuple[int, ...] = (1, 1, 1), caffe: bool = True) -> None:
        super().__init__()
        self.inplanes = 8
        self.caffe = caffe
        self.conv1 = nn.Conv2d(3, 8, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(4, layers[0], 1)
        self.layer2 = self._make_layer(6, layers[1], 2)
        self.layer3 = self._make_layer(8, layers[2], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 5)

    def _make_layer(self, planes: int, blocks: int, stride: int) -> nn.Sequential:
        out = planes * Bottleneck.expansion
        shortcut = nn.Sequential(nn.Conv2d(self.inplanes, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        stack = [Bottleneck(self.inplanes, planes, stride, shortcut, self.caffe)]
        self.inplanes = out
        stack += [Bottleneck(out, planes, 1, None, self.caffe) for _ in range(blocks - 1)]
        return nn.Sequential(*stack)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.avgpool(x).flatten(1))


def unit_state(unit: Unit, conv: str, bn: str) -> dict[str, Tensor]:
    state = {f"{conv}.weight": unit.conv.weight, f"{bn}.weight": unit.scale.gamma, f"{bn}.bias": unit.scale.beta}
    state.update({f"{bn}.{k}": v for k, v in unit.norm.state_dict().items()})
    return state


def convert(src: CaffeResNet) -> dict[str, Tensor]:
    state = unit_state(src.conv1, "conv1", "bn1")
    blocks = {"res2a": "layer1.0", "res3a": "layer2.0", "res4a": "layer3.0"}
    for name, target in blocks.items():
        block = getattr(src, name)
        for i, branch in enumerate((block.branch2a, block.branch2b, block.branch2c), start=1):
            state.update(unit_state(branch, f"{target}.conv{i}", f"{target}.bn{i}"))
        if isinstance(block.branch1, Unit):
            state.update(unit_state(block.branch1, f"{target}.downsample.0", f"{target}.downsample.1"))
    state["fc.weight"], state["fc.bias"] = src.fc.weight, src.fc.bias
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(191)
    original = CaffeResNet()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.2, 0.6)
        elif isinstance(m, Scale):
            nn.init.uniform_(m.gamma, 0.8, 1.2)
            nn.init.normal_(m.beta, std=0.1)
    port = ResNet(caffe=fixed)
    port.load_state_dict(convert(original))
    return original.eval(), port.eval(), (torch.randn(2, 3, 64, 64),)

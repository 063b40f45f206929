"""Samsung/TICO#420: transposed convolution padding was lowered as padding of the input, not as a crop of the output.

The exported road segmentation decoder keeps every shape, only the values of the upsampled maps move.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class SegNet(nn.Module):
    """Small U-shaped segmenter with learned upsampling."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.enc1 = ConvBlock(3, 8)
        self.enc2 = ConvBlock(8, 12, stride=2)
        self.enc3 = ConvBlock(12, 16, stride=2)
        self.up2 = nn.ConvTranspose2d(16, 12, 4, stride=2, padding=1)
        self.dec2 = ConvBlock(24, 12)
        self.up1 = nn.ConvTranspose2d(12, 8, 4, stride=2, padding=1)
        self.dec1 = ConvBlock(16, 8)
        self.head = nn.Conv2d(8, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        e1 = self.enc1(image)
        e2 = self.enc2(e1)
        e3 = self.enc3(e2)
        d2 = self.dec2(torch.cat([self.up2(e3), e2], dim=1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], dim=1))
        return self.head(d1)


class CircleConv(nn.Module):
    """Exported convolution with the batch norm already folded into kernel and bias."""

    def __init__(self, cin: int, cout: int, kernel: int, stride: int, activation: str) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(cout, cin, kernel, kernel))
        self.offset = nn.Parameter(torch.empty(cout))
        self.stride = stride
        self.pad = kernel // 2
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv2d(x, self.kernel, self.offset, self.stride, self.pad)
        return y.clamp(min=0) if self.activation == "relu" else y


class CircleTransposeConv(nn.Module):
    """VALID transposed convolution followed by a slice to the expected size."""

    def __init__(self, cin: int, cout: int, kernel: int, stride: int, padding: int, lowering: str) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(cin, cout, kernel, kernel))
        self.offset = nn.Parameter(torch.empty(cout))
        self.stride = stride
        self.padding = padding
        self.lowering = lowering

    def forward(self, x: Tensor) -> Tensor:
        rows, cols = x.shape[-2] * self.stride, x.shape[-1] * self.stride
        begin = self.padding
        if self.lowering == "pad_first":
            x = F.pad(x, (self.padding,) * 4)
            begin = 0
        y = F.conv_transpose2d(x, self.kernel, None, self.stride)
        y = y[:, :, begin : begin + rows, begin : begin + cols]
        return y + self.offset[:, None, None]


class CircleSegNet(nn.Module):
    def __init__(self, classes: int = 4, lowering: str = "slice_after") -> None:
        super().__init__()
        self.stem = CircleConv(3, 8, 3, 1, "relu")
        self.down = nn.ModuleList([CircleConv(8, 12, 3, 2, "relu"), CircleConv(12, 16, 3, 2, "relu")])
        self.upsample = nn.ModuleList(
            [CircleTransposeConv(16, 12, 4, 2, 1, lowering), CircleTransposeConv(12, 8, 4, 2, 1, lowering)]
        )
        self.fuse = nn.ModuleList([CircleConv(24, 12, 3, 1, "relu"), CircleConv(16, 8, 3, 1, "relu")])
        self.logits = CircleConv(8, classes, 1, 1, "none")

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        skips = []
        for layer in self.down:
            skips.append(x)
            x = layer(x)
        for up, fuse in zip(self.upsample, self.fuse):
            x = fuse(torch.cat((up(x), skips.pop()), dim=1))
        return self.logits(x)


@torch.no_grad()
def fold(src: ConvBlock, dst: CircleConv) -> None:
    gain = src.bn.weight / torch.sqrt(src.bn.running_var + src.bn.eps)
    dst.kernel.copy_(src.conv.weight * gain[:, None, None, None])
    dst.offset.copy_(src.bn.bias - src.bn.running_mean * gain)


@torch.no_grad()
def convert(src: SegNet, dst: CircleSegNet) -> None:
    pairs = [(src.enc1, dst.stem), (src.enc2, dst.down[0]), (src.enc3, dst.down[1])]
    pairs += [(src.dec2, dst.fuse[0]), (src.dec1, dst.fuse[1])]
    for a, b in pairs:
        fold(a, b)
    for a, b in [(src.up2, dst.upsample[0]), (src.up1, dst.upsample[1]), (src.head, dst.logits)]:
        b.kernel.copy_(a.weight)
        b.offset.copy_(a.bias)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(11)
    original = SegNet()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.2)
            m.running_var.uniform_(0.5, 1.5)
            m.weight.data.uniform_(0.7, 1.3)
            m.bias.data.normal_(0, 0.2)
    port = CircleSegNet(lowering="slice_after" if fixed else "pad_first")
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 3, 24, 32),)

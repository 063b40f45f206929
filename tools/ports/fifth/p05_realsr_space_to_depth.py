"""microsoft/onnxscript#2891: nn.PixelUnshuffle was exported as SpaceToDepth, whose channel order is DCR and not CRD.

A x2 restorer squeezes the image 2x2 into channels, runs dense blocks and shuffles back up.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DenseBlock(nn.Module):
    def __init__(self, nf: int, gc: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(nf, gc, 3, 1, 1)
        self.conv2 = nn.Conv2d(nf + gc, gc, 3, 1, 1)
        self.conv3 = nn.Conv2d(nf + 2 * gc, nf, 3, 1, 1)
        self.lrelu = nn.LeakyReLU(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.lrelu(self.conv1(x))
        x2 = self.lrelu(self.conv2(torch.cat((x, x1), 1)))
        x3 = self.conv3(torch.cat((x, x1, x2), 1))
        return x3 * 0.2 + x


class Restorer(nn.Module):
    def __init__(self, nf: int = 12, gc: int = 6) -> None:
        super().__init__()
        self.squeeze = nn.PixelUnshuffle(2)
        self.conv_first = nn.Conv2d(12, nf, 3, 1, 1)
        self.body = nn.Sequential(DenseBlock(nf, gc), DenseBlock(nf, gc))
        self.conv_body = nn.Conv2d(nf, nf, 3, 1, 1)
        self.conv_up = nn.Conv2d(nf, 4 * nf, 3, 1, 1)
        self.expand = nn.PixelShuffle(2)
        self.conv_last = nn.Conv2d(nf, 3, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        feat = self.conv_first(self.squeeze(x))
        feat = feat + self.conv_body(self.body(feat))
        up = F.leaky_relu(self.expand(self.conv_up(feat)), 0.2)
        return x + self.conv_last(up)


def depth_to_space(x: Tensor, block: int, mode: str) -> Tensor:
    n, c, h, w = x.shape
    if mode == "DCR":
        y = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // block**2, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // block**2, h * block, w * block)


def space_to_depth(x: Tensor, block: int, mode: str) -> Tensor:
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // block, block, w // block, block)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return y.permute(*order).reshape(n, c * block * block, h // block, w // block)


class ExportedRestorer(nn.Module):
    """Flat graph form: numbered convolutions, explicit reshapes."""

    def __init__(self, squeeze_mode: str = "CRD") -> None:
        super().__init__()
        self.squeeze_mode = squeeze_mode
        shapes = [(12, 12), (12, 6), (18, 6), (24, 12), (12, 6), (18, 6), (24, 12), (12, 12), (12, 48), (12, 3)]
        self.conv = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in shapes])

    def dense(self, x: Tensor, start: int) -> Tensor:
        grown = x
        for i in (start, start + 1):
            y = self.conv[i](grown)
            grown = torch.cat([grown, torch.where(y > 0, y, 0.2 * y)], dim=1)
        return torch.add(x, self.conv[start + 2](grown), alpha=0.2)

    def forward(self, x: Tensor) -> Tensor:
        feat = self.conv[0](space_to_depth(x, 2, self.squeeze_mode))
        trunk = self.conv[7](self.dense(self.dense(feat, 1), 4))
        up = depth_to_space(self.conv[8](feat + trunk), 2, "CRD")
        return self.conv[9](torch.where(up > 0, up, 0.2 * up)) + x


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(28)
    original = Restorer()
    port = ExportedRestorer(squeeze_mode="CRD" if fixed else "DCR")
    convs = [m for m in original.modules() if isinstance(m, nn.Conv2d)]
    for src, dst in zip(convs, port.conv):
        dst.load_state_dict(src.state_dict())
    return original.eval(), port.eval(), (torch.rand(2, 3, 16, 12),)

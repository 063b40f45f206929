"""apache/tvm#9336: the kernel layout of conv2d_transpose mixes up I and O.

The middle stages of the generator have as many input as output channels, so the swapped kernel fits silently.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Up(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.deconv = nn.ConvTranspose2d(cin, cout, 4, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.deconv(x)))


class DepthDecoder(nn.Module):
    """Latent plus skip pyramid to a dense depth map."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.project = nn.Linear(10, width * 16)
        self.up1 = Up(width, width)
        self.skip1 = nn.Conv2d(3, width, 1)
        self.up2 = Up(width, width)
        self.skip2 = nn.Conv2d(3, width, 1)
        self.up3 = nn.ConvTranspose2d(width, 1, 4, 2, 1)

    def forward(self, latent: Tensor, image: Tensor) -> Tensor:
        x = self.project(latent).view(latent.shape[0], -1, 4, 4)
        x = self.up1(x) + self.skip1(F.avg_pool2d(image, 4))
        x = self.up2(x) + self.skip2(F.avg_pool2d(image, 2))
        return F.softplus(self.up3(x))


class Conv2dTranspose(nn.Module):
    """Dilate the data, pad by kernel - 1 - padding, correlate with the flipped OIHW kernel."""

    def __init__(self, channels: int, kernel: Tensor, bias: Tensor, layout: str) -> None:
        super().__init__()
        self.channels, self.layout = channels, layout
        self.weight = nn.Parameter(kernel.clone())
        self.bias = nn.Parameter(bias.clone())

    def forward(self, data: Tensor) -> Tensor:
        n, c, h, w = data.shape
        dilated = data.new_zeros(n, c, 2 * h - 1, 2 * w - 1)
        dilated[:, :, ::2, ::2] = data
        kernel = self.weight.transpose(0, 1) if self.layout == "IOHW" else self.weight
        return F.conv2d(F.pad(dilated, (2, 2, 2, 2)), kernel.flip(2, 3), self.bias)


class RelayDecoder(nn.Module):
    def __init__(self, src: DepthDecoder, square_layout: str) -> None:
        super().__init__()
        self.dense = nn.Linear(10, src.project.out_features)
        self.transpose = nn.ModuleList()
        for up in (src.up1, src.up2):
            gain = up.bn.weight / torch.sqrt(up.bn.running_var + up.bn.eps)
            bias = up.bn.bias - up.bn.running_mean * gain
            kernel = up.deconv.weight * gain[None, :, None, None]
            self.transpose.append(Conv2dTranspose(kernel.shape[1], kernel, bias, square_layout))
        self.transpose.append(Conv2dTranspose(1, src.up3.weight, src.up3.bias, "IOHW"))
        self.lateral = nn.ModuleList([nn.Conv2d(3, 8, 1), nn.Conv2d(3, 8, 1)])
        self.pool = nn.AvgPool2d(2, 2)
        self.dense.load_state_dict(src.project.state_dict())
        self.lateral[0].load_state_dict(src.skip1.state_dict())
        self.lateral[1].load_state_dict(src.skip2.state_dict())

    def forward(self, latent: Tensor, image: Tensor) -> Tensor:
        half = self.pool(image)
        guides = (self.pool(half), half)
        data = self.dense(latent).unflatten(1, (-1, 4, 4))
        for op, lateral, guide in zip(self.transpose, self.lateral, guides):
            data = torch.relu(op(data)) + lateral(guide)
        return torch.log1p(torch.exp(self.transpose[2](data)))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(9336)
    original = DepthDecoder()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.05, 0.2)
            nn.init.normal_(m.bias, std=0.2)
    with torch.no_grad():
        port = RelayDecoder(original, square_layout="IOHW" if fixed else "OIHW")
    return original.eval(), port.eval(), (torch.randn(2, 10), torch.rand(2, 3, 32, 32))

"""sniklaus/pytorch-pwc#33: the backward warp runs with the newer grid_sample default, align_corners=False.

The base grid is built for corners at -1 and 1 and the flow is scaled by (size - 1) / 2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Pyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(8, 8, 3, 1, 1))
        self.two = nn.Sequential(nn.LeakyReLU(0.1), nn.Conv2d(8, 12, 3, 2, 1))

    def forward(self, x: Tensor) -> list[Tensor]:
        a = self.one(x)
        return [a, self.two(a)]


def correlate(first: Tensor, second: Tensor, radius: int = 1) -> Tensor:
    h, w = first.shape[-2:]
    padded = F.pad(second, (radius,) * 4)
    maps = []
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            maps.append((first * padded[:, :, dy : dy + h, dx : dx + w]).mean(1, keepdim=True))
    return torch.cat(maps, 1)


def backwarp(image: Tensor, flow: Tensor) -> Tensor:
    _, _, h, w = flow.shape
    hor = torch.linspace(-1, 1, w).view(1, 1, 1, w).expand(-1, -1, h, -1)
    ver = torch.linspace(-1, 1, h).view(1, 1, h, 1).expand(-1, -1, -1, w)
    scaled = torch.cat((flow[:, :1] / ((w - 1) / 2), flow[:, 1:] / ((h - 1) / 2)), 1)
    grid = (torch.cat((hor, ver), 1) + scaled).permute(0, 2, 3, 1)
    return F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


class PwcNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.extractor = Pyramid()
        self.coarse = nn.Sequential(nn.Conv2d(9 + 12, 12, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(12, 2, 3, 1, 1))
        self.upflow = nn.ConvTranspose2d(2, 2, 4, 2, 1)
        self.fine = nn.Sequential(nn.Conv2d(9 + 8 + 2, 12, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(12, 2, 3, 1, 1))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        f1, f2 = self.extractor(first), self.extractor(second)
        flow = self.coarse(torch.cat((F.leaky_relu(correlate(f1[1], f2[1]), 0.1), f1[1]), 1))
        flow = self.upflow(flow)
        warped = backwarp(f2[0], flow * 1.25)
        volume = F.leaky_relu(correlate(f1[0], warped), 0.1)
        return flow + self.fine(torch.cat((volume, f1[0], flow), 1))


class Extractor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.netOne = nn.Sequential(
            nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1),
            nn.LeakyReLU(inplace=False, negative_slope=0.1),
            nn.Conv2d(8, 8, kernel_size=3, stride=1, padding=1),
        )
        self.netTwo = nn.Sequential(
            nn.LeakyReLU(inplace=False, negative_slope=0.1),
            nn.Conv2d(8, 12, kernel_size=3, stride=2, padding=1),
        )

    def forward(self, tenInput: Tensor) -> list[Tensor]:
        tenOne = self.netOne(tenInput)
        return [tenOne, self.netTwo(tenOne)]


class Decoder(nn.Module):
    def __init__(self, channels: int, gain: float, **sampling: bool) -> None:
        super().__init__()
        self.gain = gain
        self.sampling = sampling
        self.netMain = nn.Sequential(
            nn.Conv2d(channels, 12, kernel_size=3, stride=1, padding=1),
            nn.LeakyReLU(inplace=False, negative_slope=0.1),
            nn.Conv2d(12, 2, kernel_size=3, stride=1, padding=1),
        )
        self.grids: dict[tuple[int, int], Tensor] = {}

    def warp(self, tenInput: Tensor, tenFlow: Tensor) -> Tensor:
        h, w = tenFlow.shape[2:]
        if (h, w) not in self.grids:
            ver, hor = torch.meshgrid(torch.linspace(-1.0, 1.0, h), torch.linspace(-1.0, 1.0, w), indexing="ij")
            self.grids[(h, w)] = torch.stack([hor, ver], dim=-1).unsqueeze(0)
        unit = tenFlow.new_tensor([2.0 / (w - 1.0), 2.0 / (h - 1.0)])
        grid = self.grids[(h, w)] + tenFlow.permute(0, 2, 3, 1) * unit
        return F.grid_sample(tenInput, grid, **self.sampling)

    def volume(self, tenFirst: Tensor, tenSecond: Tensor) -> Tensor:
        b, c, h, w = tenSecond.shape
        patches = F.unfold(tenSecond, kernel_size=3, padding=1).view(b, c, 9, h, w)
        return F.leaky_relu(torch.einsum("bchw,bckhw->bkhw", tenFirst, patches) / c, negative_slope=0.1)

    def forward(self, tenFirst: Tensor, tenSecond: Tensor, tenFlow: Tensor | None) -> Tensor:
        if tenFlow is None:
            return self.netMain(torch.cat([self.volume(tenFirst, tenSecond), tenFirst], dim=1))
        tenSecond = self.warp(tenSecond, tenFlow * self.gain)
        tenFeat = torch.cat([self.volume(tenFirst, tenSecond), tenFirst, tenFlow], dim=1)
        return tenFlow + self.netMain(tenFeat)


class Network(nn.Module):
    def __init__(self, **sampling: bool) -> None:
        super().__init__()
        self.netExtractor = Extractor()
        self.netCoarse = Decoder(21, 1.0, **sampling)
        self.netUpflow = nn.ConvTranspose2d(2, 2, kernel_size=4, stride=2, padding=1)
        self.netFine = Decoder(19, 1.25, **sampling)

    def forward(self, tenOne: Tensor, tenTwo: Tensor) -> Tensor:
        both = self.netExtractor(torch.cat([tenOne, tenTwo], dim=0))
        (one_fine, two_fine), (one_coarse, two_coarse) = (level.chunk(2, dim=0) for level in both)
        tenFlow = self.netUpflow(self.netCoarse(one_coarse, two_coarse, None))
        return self.netFine(one_fine, two_fine, tenFlow)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(33)
    original = PwcNet()
    with torch.no_grad():
        original.upflow.weight.mul_(4.0)
        original.fine[0].weight[:, :9].mul_(6.0)
    sampling = {"align_corners": True} if fixed else {"align_corners": False}
    port = Network(**sampling)
    renames = {"extractor.one": "netExtractor.netOne", "extractor.two": "netExtractor.netTwo"}
    renames |= {"coarse": "netCoarse.netMain", "upflow": "netUpflow", "fine": "netFine.netMain"}
    state = {}
    for key, value in original.state_dict().items():
        prefix = next(p for p in renames if key.startswith(p + "."))
        state[renames[prefix] + key[len(prefix) :]] = value
    port.load_state_dict(state)
    return original.eval(), port.eval(), (torch.rand(1, 3, 24, 32), torch.rand(1, 3, 24, 32))

"""jax-ml/jax#11252: linen.ConvTranspose given a PyTorch kernel does not reproduce nn.ConvTranspose2d.

PyTorch's transposed convolution is the gradient of a correlation: over the dilated input its kernel is flipped in both
spatial axes.  The linen layer correlates with the kernel as it is (transpose_kernel=False).  The model is a neck for
dense prediction that resizes tokens to two scales and fuses them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PreActResidual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.convolution2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.convolution1(F.relu(x))
        return x + self.convolution2(F.relu(h))


class ReassembleLayer(nn.Module):
    def __init__(self, hidden: int, channels: int, factor: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(hidden, channels, kernel_size=1)
        self.resize = nn.ConvTranspose2d(channels, channels, kernel_size=factor + 1, stride=factor, padding=0)

    def forward(self, tokens: Tensor, height: int, width: int) -> Tensor:
        grid = tokens.transpose(1, 2).unflatten(2, (height, width))
        return self.resize(self.projection(grid))


class DepthNeck(nn.Module):
    def __init__(self, hidden: int = 12, channels: int = 8, height: int = 3, width: int = 4) -> None:
        super().__init__()
        self.height, self.width = height, width
        self.layers = nn.ModuleList([ReassembleLayer(hidden, channels, 2), ReassembleLayer(hidden, channels, 4)])
        self.residual = nn.ModuleList([PreActResidual(channels), PreActResidual(channels)])
        self.head = nn.Sequential(nn.Conv2d(channels, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 1), nn.Softplus())

    def forward(self, early: Tensor, late: Tensor) -> Tensor:
        coarse = self.residual[0](self.layers[0](late, self.height, self.width))
        fine = self.layers[1](early, self.height, self.width)
        coarse = F.interpolate(coarse, size=fine.shape[-2:], mode="nearest")
        return self.head(self.residual[1](fine + coarse)).squeeze(1)


class LinenConv(nn.Module):
    """Channels-last convolution with an HWIO kernel and 'SAME' padding for odd sizes."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.kernel = nn.Parameter(conv.weight.detach().permute(2, 3, 1, 0).contiguous())
        self.bias = nn.Parameter(conv.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        kh, kw = self.kernel.shape[:2]
        padded = F.pad(x, (0, 0, kw // 2, kw // 2, kh // 2, kh // 2))
        patches = padded.unfold(1, kh, 1).unfold(2, kw, 1)
        return torch.einsum("bhwcij,ijco->bhwo", patches, self.kernel) + self.bias


class LinenConvTranspose(nn.Module):
    """Dilates the input by the stride, pads for a full ('VALID') result and correlates with an HWIO kernel."""

    def __init__(self, kernel: Tensor, bias: Tensor, stride: int, transpose_kernel: bool = False) -> None:
        super().__init__()
        self.kernel = nn.Parameter(kernel)
        self.bias = nn.Parameter(bias)
        self.stride = stride
        self.transpose_kernel = transpose_kernel

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.kernel.flip(0, 1) if self.transpose_kernel else self.kernel
        batch, height, width, channels = x.shape
        dilated = x.new_zeros(batch, (height - 1) * self.stride + 1, (width - 1) * self.stride + 1, channels)
        dilated[:, :: self.stride, :: self.stride] = x
        pad = kernel.shape[0] - 1
        lhs = F.pad(dilated, (0, 0, pad, pad, pad, pad)).permute(0, 3, 1, 2)
        out = F.conv2d(lhs, kernel.permute(3, 2, 0, 1))
        return out.permute(0, 2, 3, 1) + self.bias


class FlaxReassemble(nn.Module):
    def __init__(self, source: ReassembleLayer, transpose_kernel: bool) -> None:
        super().__init__()
        self.project_kernel = nn.Parameter(source.projection.weight.detach()[:, :, 0, 0].T.contiguous())
        self.project_bias = nn.Parameter(source.projection.bias.detach().clone())
        resize = source.resize
        self.resize = LinenConvTranspose(
            resize.weight.detach().permute(2, 3, 0, 1).contiguous(),
            resize.bias.detach().clone(),
            resize.stride[0],
            transpose_kernel,
        )

    def forward(self, hidden: Tensor, grid: tuple[int, int]) -> Tensor:
        projected = hidden @ self.project_kernel + self.project_bias
        return self.resize(projected.reshape(hidden.shape[0], *grid, -1))


class FlaxResidual(nn.Module):
    def __init__(self, source: PreActResidual) -> None:
        super().__init__()
        self.Conv_0 = LinenConv(source.convolution1)
        self.Conv_1 = LinenConv(source.convolution2)

    def forward(self, x: Tensor) -> Tensor:
        return self.Conv_1(self.Conv_0(x.relu()).relu()) + x


class FlaxDepthNeck(nn.Module):
    def __init__(self, source: DepthNeck, transpose_kernel: bool) -> None:
        super().__init__()
        self.grid = (source.height, source.width)
        self.reassemble_coarse = FlaxReassemble(source.layers[0], transpose_kernel)
        self.reassemble_fine = FlaxReassemble(source.layers[1], transpose_kernel)
        self.fusion_0 = FlaxResidual(source.residual[0])
        self.fusion_1 = FlaxResidual(source.residual[1])
        self.head_conv = LinenConv(source.head[0])
        self.head_out = LinenConv(source.head[2])

    @staticmethod
    def nearest(x: Tensor, height: int, width: int) -> Tensor:
        rows = torch.arange(height) * x.shape[1] // height
        cols = torch.arange(width) * x.shape[2] // width
        return x[:, rows][:, :, cols]

    def forward(self, early: Tensor, late: Tensor) -> Tensor:
        coarse = self.fusion_0(self.reassemble_coarse(late, self.grid))
        fine = self.reassemble_fine(early, self.grid)
        fused = self.fusion_1(fine + self.nearest(coarse, fine.shape[1], fine.shape[2]))
        return F.softplus(self.head_out(self.head_conv(fused).relu()))[..., 0]


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(128)
    original = DepthNeck().eval()
    port = FlaxDepthNeck(original, transpose_kernel=fixed).eval()
    return original, port, (torch.randn(2, 12, 12), torch.randn(2, 12, 12))


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())

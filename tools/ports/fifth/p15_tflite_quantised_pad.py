"""apache/tvm#4807: SAME padding of a quantised TFLite convolution is filled with 0 and not with the input zero point.

Tensors hold integers in float32. The importer also splits the zero point terms off the convolution, which is exact.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

QMIN, QMAX = 0.0, 255.0


class QuantConv(nn.Module):
    """Reference kernel: subtract zero points, convolve, add bias, rescale, clamp (fused ReLU)."""

    def __init__(self, cin: int, cout: int, stride: int, groups: int, zp_in: float, zp_out: float, scale: float):
        super().__init__()
        self.stride, self.groups = stride, groups
        self.zp_in, self.zp_out, self.scale = zp_in, zp_out, scale
        self.register_buffer("weight", torch.randint(0, 256, (cout, cin // groups, 3, 3)).float())
        self.register_buffer("zp_w", torch.tensor(121.0))
        self.register_buffer("bias", torch.randint(-800, 800, (cout,)).float())

    def forward(self, q: Tensor) -> Tensor:
        total = max((q.shape[-1] - 1) // self.stride * self.stride + 3 - q.shape[-1], 0)
        before, after = total // 2, total - total // 2
        x = F.pad(q - self.zp_in, (before, after, before, after))
        acc = F.conv2d(x, self.weight - self.zp_w, self.bias, self.stride, groups=self.groups)
        out = torch.round(acc.double() * self.scale).float() + self.zp_out
        return out.clamp(max(QMIN, self.zp_out), QMAX)


class TfliteNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = QuantConv(3, 8, 2, 1, 128.0, 3.0, 0.0009)
        self.depthwise = QuantConv(8, 8, 1, 8, 3.0, 7.0, 0.0031)
        self.project = QuantConv(8, 12, 2, 1, 7.0, 5.0, 0.0007)
        self.fc = nn.Linear(12, 6)

    def forward(self, image: Tensor) -> Tensor:
        q = torch.round(image * 127.0 + 128.0).clamp(QMIN, QMAX)
        q = self.project(self.depthwise(self.conv(q)))
        return self.fc((q - 5.0).mean(dim=(2, 3)) * 0.05)


class QnnConv2D(nn.Module):
    """conv(q, w) - zp_w * sum(q) - zp_q * sum(w) + zp_q * zp_w * taps, then requantise."""

    def __init__(self, kernel: Tensor, bias: Tensor, attrs: dict[str, float], strides: int, groups: int, zp_pad: bool):
        super().__init__()
        self.attrs = attrs
        self.strides, self.groups, self.zp_pad = strides, groups, zp_pad
        self.register_buffer("kernel", kernel.clone())
        self.register_buffer("bias_int32", bias.clone())
        self.register_buffer("ones", torch.ones_like(kernel))

    def forward(self, data: Tensor) -> Tensor:
        size, s, a = data.shape[-1], self.strides, self.attrs
        need = max((-(-size // s) - 1) * s + 3 - size, 0)
        pad_value = a["input_zp"] if self.zp_pad else 0.0
        data = F.pad(data, (need // 2, need - need // 2) * 2, value=pad_value)
        term1 = F.conv2d(data, self.kernel, stride=s, groups=self.groups)
        term2 = a["kernel_zp"] * F.conv2d(data, self.ones, stride=s, groups=self.groups)
        term3 = a["input_zp"] * self.kernel.sum(dim=(1, 2, 3))
        term4 = a["input_zp"] * a["kernel_zp"] * self.kernel[0].numel()
        acc = term1 - term2 + (term4 - term3 + self.bias_int32)[:, None, None]
        requantised = torch.round(acc.to(torch.float64) * a["multiplier"]).to(torch.float32) + a["output_zp"]
        return torch.clamp(requantised, min=max(QMIN, a["output_zp"]), max=QMAX)


class RelayNet(nn.Module):
    def __init__(self, src: TfliteNet, zp_pad: bool) -> None:
        super().__init__()
        ops = []
        for layer in (src.conv, src.depthwise, src.project):
            attrs = {"input_zp": layer.zp_in, "kernel_zp": float(layer.zp_w), "output_zp": layer.zp_out}
            attrs["multiplier"] = layer.scale
            ops.append(QnnConv2D(layer.weight, layer.bias, attrs, layer.stride, layer.groups, zp_pad))
        self.ops = nn.Sequential(*ops)
        self.dense_w = nn.Parameter(src.fc.weight.detach().clone())
        self.dense_b = nn.Parameter(src.fc.bias.detach().clone())

    def forward(self, image: Tensor) -> Tensor:
        quantised = torch.clamp(torch.round(image * 127.0 + 128.0), QMIN, QMAX)
        features = self.ops(quantised)
        pooled = 0.05 * (features - 5.0).flatten(2).mean(-1)
        return torch.addmm(self.dense_b, pooled, self.dense_w.T)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(4807)
    original = TfliteNet()
    port = RelayNet(original, zp_pad=fixed)
    return original.eval(), port.eval(), (torch.rand(2, 3, 15, 15) * 1.6 - 0.8,)

"""After VincentGourbin/flux-2-swift-mlx#106: image-to-image results of the ported VAE encoder have a
washed-out border at the top and left; text-to-image is clean."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResnetBlock2D(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, c_in, eps=1e-6), nn.GroupNorm(4, c_out, eps=1e-6)
        self.conv1, self.conv2 = nn.Conv2d(c_in, c_out, 3, padding=1), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return self.conv_shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class Downsample2D(nn.Module):
    def __init__(self, c, padding=0):
        super().__init__()
        self.padding = padding
        self.conv = nn.Conv2d(c, c, 3, stride=2, padding=padding)

    def forward(self, x):
        if self.padding == 0:
            x = F.pad(x, (0, 1, 0, 1))
        return self.conv(x)


class DiffusersEncoder(nn.Module):
    def __init__(self, widths=(8, 12, 16), latent=3):
        super().__init__()
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        self.resnets, self.downsamplers = nn.ModuleList(), nn.ModuleList()
        prev = widths[0]
        for i, w in enumerate(widths):
            self.resnets.append(ResnetBlock2D(prev, w))
            if i < len(widths) - 1:
                self.downsamplers.append(Downsample2D(w))
            prev = w
        self.conv_norm_out = nn.GroupNorm(4, prev, eps=1e-6)
        self.conv_out = nn.Conv2d(prev, 2 * latent, 3, padding=1)
        self.quant_conv = nn.Conv2d(2 * latent, 2 * latent, 1)

    def forward(self, sample):
        x = self.conv_in(sample)
        for i, r in enumerate(self.resnets):
            x = r(x)
            if i < len(self.downsamplers):
                x = self.downsamplers[i](x)
        return self.quant_conv(self.conv_out(F.silu(self.conv_norm_out(x))))


class ConvMLX(nn.Module):
    """Convolution on NHWC data with an OHWI weight."""

    def __init__(self, c_in, c_out, k, stride=1, padding=0):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(c_out, k, k, c_in))
        self.bias = nn.Parameter(torch.zeros(c_out))
        self.stride, self.padding = stride, padding

    def forward(self, x):
        y = F.conv2d(x.permute(0, 3, 1, 2), self.weight.permute(0, 3, 1, 2), self.bias, self.stride, self.padding)
        return y.permute(0, 2, 3, 1)


class GroupNormMLX(nn.Module):
    def __init__(self, groups, c):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.groups = groups

    def forward(self, x):
        b, h, w, c = x.shape
        g = x.reshape(b, h * w, self.groups, c // self.groups)
        var, mean = torch.var_mean(g, dim=(1, 3), keepdim=True, unbiased=False)
        return ((g - mean) * torch.rsqrt(var + 1e-6)).reshape(b, h, w, c) * self.weight + self.bias


class Res(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.n1, self.n2 = GroupNormMLX(4, a), GroupNormMLX(4, b)
        self.c1, self.c2 = ConvMLX(a, b, 3, padding=1), ConvMLX(b, b, 3, padding=1)
        self.skip = ConvMLX(a, b, 1) if a != b else None

    def forward(self, x):
        y = self.c2(F.silu(self.n2(self.c1(F.silu(self.n1(x))))))
        return y + (x if self.skip is None else self.skip(x))


class Down(nn.Module):
    def __init__(self, c, asymmetric):
        super().__init__()
        self.asymmetric = asymmetric
        self.conv = ConvMLX(c, c, 3, stride=2, padding=0 if asymmetric else 1)

    def forward(self, x):
        if self.asymmetric:
            x = F.pad(x, (0, 0, 0, 1, 0, 1))
        return self.conv(x)


class Flux2Encoder(nn.Module):
    def __init__(self, asymmetric, widths=(8, 12, 16), latent=3):
        super().__init__()
        self.stem = ConvMLX(3, widths[0], 3, padding=1)
        ins = (widths[0],) + widths[:-1]
        self.res = nn.ModuleList(Res(a, b) for a, b in zip(ins, widths))
        self.down = nn.ModuleList(Down(w, asymmetric) for w in widths[:-1])
        self.norm = GroupNormMLX(4, widths[-1])
        self.moments = ConvMLX(widths[-1], 2 * latent, 3, padding=1)

    def forward(self, image):
        x = self.stem(image.permute(0, 2, 3, 1))
        for i, r in enumerate(self.res):
            x = r(x)
            if i < len(self.down):
                x = self.down[i](x)
        return self.moments(F.silu(self.norm(x))).permute(0, 3, 1, 2)


def load_weights(enc, port):
    s, out = {k: v.detach() for k, v in enc.state_dict().items()}, {}
    ren = {"norm1": "n1", "norm2": "n2", "conv1": "c1", "conv2": "c2", "conv_shortcut": "skip"}
    top = {"conv_in": "stem", "conv_norm_out": "norm", "resnets": "res", "downsamplers": "down", "conv": "conv"}
    for k, v in s.items():
        if k.startswith(("conv_out", "quant_conv")):
            continue
        parts = [ren.get(p, top.get(p, p)) for p in k.split(".")]
        out[".".join(parts)] = v.permute(0, 2, 3, 1) if v.ndim == 4 else v
    mix = s["quant_conv.weight"][:, :, 0, 0]
    out["moments.weight"] = torch.einsum("oi,ichw->ohwc", mix, s["conv_out.weight"])
    out["moments.bias"] = mix @ s["conv_out.bias"] + s["quant_conv.bias"]
    port.load_state_dict({k: v.contiguous() for k, v in out.items()})


def build(fixed):
    torch.manual_seed(106)
    original = DiffusersEncoder().eval()
    port = Flux2Encoder(asymmetric=fixed).eval()
    load_weights(original, port)
    return original, port, (torch.rand(1, 3, 24, 32) * 2 - 1,)

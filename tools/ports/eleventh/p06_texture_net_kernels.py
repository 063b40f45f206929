"""After tgyg-jegli/tf_texture_net#1.

A Torch7 texture network (style transfer) was carried to a channels-last framework.  The
README concedes that "the implementation is not completely identical": textures come out
similar but never the same.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

C = 10


class LuaBlock(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, k)
        self.inorm = nn.InstanceNorm2d(cout, affine=True)
        self.k = k

    def forward(self, x):
        p = self.k // 2
        x = F.pad(x, (p, p, p, p), mode="reflect") if p else x
        return F.leaky_relu(self.inorm(self.conv(x)), 0.01)


class LuaTextureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.b1 = LuaBlock(3, C, 5)
        self.b2 = LuaBlock(C, C, 3)
        self.join = LuaBlock(2 * C, C, 3)
        self.out = nn.Conv2d(C, 3, 1)

    def forward(self, x):
        a = self.b1(x)
        b = self.b2(F.avg_pool2d(a, 2))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return torch.tanh(self.out(self.join(torch.cat([a, b], 1))))


def conv2d_nhwc(x, kernel, bias):
    """x (N,H,W,C), kernel (kh,kw,in,out), VALID."""
    kh, kw, cin, cout = kernel.shape
    patches = x.unfold(1, kh, 1).unfold(2, kw, 1)  # N H W C kh kw
    patches = patches.permute(0, 1, 2, 4, 5, 3).flatten(3)
    return patches @ kernel.reshape(kh * kw * cin, cout) + bias


class TFLayer(nn.Module):
    def __init__(self, kh, cin, cout):
        super().__init__()
        self.filter = nn.Parameter(torch.empty(kh, kh, cin, cout))
        self.bias = nn.Parameter(torch.empty(cout))
        self.gamma = nn.Parameter(torch.empty(cout))
        self.beta = nn.Parameter(torch.empty(cout))

    def forward(self, x):
        p = self.filter.shape[0] // 2
        if p:
            x = F.pad(x.permute(0, 3, 1, 2), [p] * 4, mode="reflect").permute(0, 2, 3, 1)
        x = conv2d_nhwc(x, self.filter, self.bias)
        mu = x.mean((1, 2), keepdim=True)
        var = ((x - mu) ** 2).mean((1, 2), keepdim=True)
        x = (x - mu) / (var + 1e-5).sqrt() * self.gamma + self.beta
        return torch.maximum(x, 0.01 * x)


class TFTextureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_a = TFLayer(5, 3, C)
        self.layer_b = TFLayer(3, C, C)
        self.layer_c = TFLayer(3, 2 * C, C)
        self.rgb_w = nn.Parameter(torch.empty(C, 3))
        self.rgb_b = nn.Parameter(torch.empty(3))

    def forward(self, img):
        x = self.layer_a(img.permute(0, 2, 3, 1))
        n, h, w, c = x.shape
        y = self.layer_b(x.reshape(n, h // 2, 2, w // 2, 2, c).mean((2, 4)))
        y = y[:, :, None, :, None].expand(-1, -1, 2, -1, 2, -1).reshape(n, h, w, C)
        z = self.layer_c(torch.cat([x, y], -1))
        return torch.tanh(z @ self.rgb_w + self.rgb_b).permute(0, 3, 1, 2)


def convert(sd, axes=(3, 2, 1, 0)):
    new = {}
    for o, n in (("b1", "layer_a"), ("b2", "layer_b"), ("join", "layer_c")):
        new[n + ".filter"] = sd[o + ".conv.weight"].permute(axes).contiguous()
        new[n + ".bias"] = sd[o + ".conv.bias"]
        new[n + ".gamma"], new[n + ".beta"] = sd[o + ".inorm.weight"], sd[o + ".inorm.bias"]
    new["rgb_w"] = sd["out.weight"].flatten(1).T.contiguous()
    new["rgb_b"] = sd["out.bias"]
    return new


def build(fixed):
    torch.manual_seed(1)
    original = LuaTextureNet().eval()
    with torch.no_grad():
        for n, p in original.named_parameters():
            if "inorm" in n:
                p.add_(0.3 * torch.randn_like(p))
    port = TFTextureNet().eval()
    sd = original.state_dict()
    port.load_state_dict(convert(sd, (2, 3, 1, 0)) if fixed else convert(sd))
    return original, port, (torch.rand(2, 3, 16, 16),)

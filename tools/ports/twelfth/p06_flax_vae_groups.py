"""After huggingface/diffusers#621: the encoder of an autoencoder written again for Flax (channels
last). A checkpoint trained with another norm_num_groups loads without complaint, but its latents
differ from those of the torch encoder."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = {"norm_num_groups": 8, "block_out_channels": (32, 64), "latent_channels": 4}


class ResnetBlock2D(nn.Module):
    def __init__(self, cin, cout, groups):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, cin, eps=1e-6)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, cout, eps=1e-6)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else None

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        c0, c1 = CFG["block_out_channels"]
        g = CFG["norm_num_groups"]
        self.conv_in = nn.Conv2d(3, c0, 3, padding=1)
        self.down0 = ResnetBlock2D(c0, c0, g)
        self.downsample = nn.Conv2d(c0, c0, 3, stride=2)
        self.down1 = ResnetBlock2D(c0, c1, g)
        self.mid = ResnetBlock2D(c1, c1, g)
        self.conv_norm_out = nn.GroupNorm(g, c1, eps=1e-6)
        self.conv_out = nn.Conv2d(c1, 2 * CFG["latent_channels"], 3, padding=1)

    def forward(self, img):
        x = self.down0(self.conv_in(img))
        x = self.downsample(F.pad(x, (0, 1, 0, 1)))
        x = self.mid(self.down1(x))
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class FlaxConv(nn.Module):
    def __init__(self, cin, cout, k, strides=1, pad=None):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(k, k, cin, cout))
        self.bias = nn.Parameter(torch.empty(cout))
        self.strides, self.pad = strides, (k // 2,) * 4 if pad is None else pad

    def forward(self, x):
        x = F.pad(x.permute(0, 3, 1, 2), self.pad)
        return F.conv2d(x, self.kernel.permute(3, 2, 0, 1), self.bias, self.strides).permute(0, 2, 3, 1)


class FlaxGroupNorm(nn.Module):
    def __init__(self, channels, num_groups, epsilon=1e-6):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))
        self.num_groups, self.epsilon = num_groups, epsilon

    def forward(self, x):
        b, h, w, c = x.shape
        g = x.reshape(b, h * w, self.num_groups, c // self.num_groups)
        mean = g.mean((1, 3), keepdim=True)
        var = g.var((1, 3), unbiased=False, keepdim=True)
        g = (g - mean) / torch.sqrt(var + self.epsilon)
        return g.reshape(b, h, w, c) * self.scale + self.bias


class FlaxResnetBlock2D(nn.Module):
    def __init__(self, cin, cout, groups):
        super().__init__()
        self.norm1, self.norm2 = FlaxGroupNorm(cin, groups), FlaxGroupNorm(cout, groups)
        self.conv1, self.conv2 = FlaxConv(cin, cout, 3), FlaxConv(cout, cout, 3)
        if cin != cout:
            self.conv_shortcut = FlaxConv(cin, cout, 1)

    def forward(self, hidden):
        residual = hidden
        for norm, conv in ((self.norm1, self.conv1), (self.norm2, self.conv2)):
            hidden = conv(F.silu(norm(hidden)))
        if hasattr(self, "conv_shortcut"):
            residual = self.conv_shortcut(residual)
        return hidden + residual


class FlaxEncoder(nn.Module):
    def __init__(self, norm_num_groups, fixed):
        super().__init__()
        c0, c1 = CFG["block_out_channels"]
        block_groups = norm_num_groups if fixed else 32
        self.conv_in = FlaxConv(3, c0, 3)
        self.down_blocks_0 = FlaxResnetBlock2D(c0, c0, block_groups)
        self.downsamplers_0 = FlaxConv(c0, c0, 3, 2, (0, 1, 0, 1))
        self.down_blocks_1 = FlaxResnetBlock2D(c0, c1, block_groups)
        self.mid_block = FlaxResnetBlock2D(c1, c1, block_groups)
        self.conv_norm_out = FlaxGroupNorm(c1, norm_num_groups)
        self.conv_out = FlaxConv(c1, 2 * CFG["latent_channels"], 3)

    def forward(self, sample):
        x = self.conv_in(sample.permute(0, 2, 3, 1))
        x = self.downsamplers_0(self.down_blocks_0(x))
        x = self.mid_block(self.down_blocks_1(x))
        x = self.conv_out(F.silu(self.conv_norm_out(x)))
        return x.permute(0, 3, 1, 2)


def convert(sd):
    names = {"down0": "down_blocks_0", "down1": "down_blocks_1", "mid": "mid_block", "downsample": "downsamplers_0"}
    out = {}
    for key, w in sd.items():
        parts = key.split(".")
        parts[0] = names.get(parts[0], parts[0])
        if parts[-1] == "weight":
            parts[-1] = "kernel" if w.dim() == 4 else "scale"
            w = w.permute(2, 3, 1, 0) if w.dim() == 4 else w
        out[".".join(parts)] = w
    return out


def build(fixed):
    torch.manual_seed(621)
    original = Encoder().eval()
    for p in original.parameters():
        p.data.add_(torch.randn_like(p) * 0.1)
    port = FlaxEncoder(CFG["norm_num_groups"], fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 3, 16, 16),)

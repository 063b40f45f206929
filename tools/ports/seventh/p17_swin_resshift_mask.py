"""After zsyOAOA/ResShift#81: the Swin block of a diffusion super-resolution net, taken over from the
official channels-last code to channels-first maps, does not mask the wrapped windows as it should."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def window_partition(x, ws):
    b, h, w, c = x.shape
    return x.view(b, h // ws, ws, w // ws, ws, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, c)


def window_reverse(win, ws, h, w):
    b = win.shape[0] // (h * w // ws // ws)
    return win.view(b, h // ws, w // ws, ws, ws, -1).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, -1)


def relative_index(ws):
    c = torch.stack(torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij")).flatten(1)
    r = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + ws - 1
    return r[..., 0] * (2 * ws - 1) + r[..., 1]


class SwinTransformerBlock(nn.Module):
    def __init__(self, dim, heads, ws, shift):
        super().__init__()
        self.heads, self.ws, self.shift = heads, ws, shift
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.randn((2 * ws - 1) ** 2, heads) * 0.5)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def mask(self, h, w):
        img = torch.zeros(1, h, w, 1)
        cuts = (slice(0, -self.ws), slice(-self.ws, -self.shift), slice(-self.shift, None))
        n = 0
        for a in cuts:
            for b in cuts:
                img[:, a, b] = n
                n += 1
        m = window_partition(img, self.ws).squeeze(-1)
        return (m[:, None] - m[:, :, None]).ne(0).float() * -100.0

    def forward(self, x):
        b, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = window_partition(y, self.ws)
        q, k, v = self.qkv(y).view(y.shape[0], -1, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = q * (c // self.heads) ** -0.5 @ k.transpose(-1, -2) + self.table[relative_index(self.ws)].permute(2, 0, 1)
        if self.shift:
            m = self.mask(h, w)
            a = (a.view(b, m.shape[0], self.heads, *a.shape[-2:]) + m[None, :, None]).view_as(a)
        y = self.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(y.shape))
        y = window_reverse(y, self.ws, h, w)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class SwinSR(nn.Module):
    def __init__(self, dim=16, heads=2, ws=4):
        super().__init__()
        self.conv_first = nn.Conv2d(3, dim, 3, padding=1)
        self.blocks = nn.ModuleList(
            SwinTransformerBlock(dim, heads, ws, 0 if i % 2 == 0 else ws // 2) for i in range(4)
        )
        self.conv_last = nn.Conv2d(dim, 3, 3, padding=1)

    def forward(self, lq):
        x = self.conv_first(lq)
        y = x.permute(0, 2, 3, 1)
        for b in self.blocks:
            y = b(y)
        return self.conv_last(x + y.permute(0, 3, 1, 2))


class WindowAttention2d(nn.Module):
    def __init__(self, dim, heads, ws):
        super().__init__()
        self.heads, self.ws = heads, ws
        self.to_qkv, self.to_out = nn.Conv2d(dim, 3 * dim, 1), nn.Conv2d(dim, dim, 1)
        self.register_buffer("bias", torch.zeros(heads, ws * ws, ws * ws))

    def split(self, x):
        b, c, h, w = x.shape
        x = x.view(b, c, h // self.ws, self.ws, w // self.ws, self.ws)
        return x.permute(0, 2, 4, 1, 3, 5).flatten(4).flatten(1, 2)

    def forward(self, x, mask):
        b, c, h, w = x.shape
        q, k, v = self.split(self.to_qkv(x)).chunk(3, dim=2)
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(-1, -2) for t in (q, k, v))
        bias = self.bias if mask is None else self.bias + mask[None, :, None]
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias.expand(b, q.shape[1], -1, -1, -1) if mask is not None else bias
        )
        y = y.transpose(-1, -2).flatten(2, 3).view(b, h // self.ws, w // self.ws, c, self.ws, self.ws)
        return self.to_out(y.permute(0, 3, 1, 4, 2, 5).reshape(b, c, h, w))


class ShiftedBlock(nn.Module):
    def __init__(self, dim, heads, window_size, shift_size, fixed):
        super().__init__()
        self.window_size, self.shift_size, self.fixed = window_size, shift_size, fixed
        self.norm1, self.norm2 = nn.GroupNorm(1, dim), nn.GroupNorm(1, dim)
        self.attn = WindowAttention2d(dim, heads, window_size)
        self.mlp = nn.Sequential(nn.Conv2d(dim, 2 * dim, 1), nn.GELU(), nn.Conv2d(2 * dim, dim, 1))

    def pixel_norm(self, n, x):
        return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], n.weight, n.bias).permute(0, 3, 1, 2)

    def calculate_mask(self, x_size):
        H, W = x_size
        img_mask = torch.zeros((1, 1, H, W))
        h_slices = (
            slice(0, -self.window_size),
            slice(-self.window_size, -self.shift_size),
            slice(-self.shift_size, None),
        )
        w_slices = h_slices
        cnt = 0
        for h in h_slices:
            for w in w_slices:
                if self.fixed:
                    img_mask[:, :, h, w] = cnt
                else:
                    img_mask[:, h, w, :] = cnt
                cnt += 1
        ids = self.attn.split(img_mask)[0, :, 0]
        diff = ids.unsqueeze(1) - ids.unsqueeze(2)
        return diff.masked_fill(diff != 0, -100.0)

    def forward(self, x):
        s = self.shift_size
        y = self.pixel_norm(self.norm1, x)
        if s > 0:
            y = torch.roll(
                self.attn(torch.roll(y, shifts=(-s, -s), dims=(2, 3)), self.calculate_mask(x.shape[2:])),
                shifts=(s, s),
                dims=(2, 3),
            )
        else:
            y = self.attn(y, None)
        x = x + y
        return x + self.mlp(self.pixel_norm(self.norm2, x))


class ResShiftNet(nn.Module):
    def __init__(self, fixed, dim=16, heads=2, ws=4):
        super().__init__()
        self.head = nn.Conv2d(3, dim, 3, padding=1)
        self.body = nn.Sequential(*[ShiftedBlock(dim, heads, ws, (i % 2) * ws // 2, fixed) for i in range(4)])
        self.tail = nn.Conv2d(dim, 3, 3, padding=1)

    def forward(self, lq):
        x = self.head(lq)
        return self.tail(self.body(x) + x)


def convert(src):
    s, o = src.state_dict(), {}
    for p in ("weight", "bias"):
        o["head." + p], o["tail." + p] = s["conv_first." + p], s["conv_last." + p]
        for i in range(4):
            for a, b in (
                ("qkv", "attn.to_qkv"),
                ("proj", "attn.to_out"),
                ("fc1", "mlp.0"),
                ("fc2", "mlp.2"),
                ("norm1", "norm1"),
                ("norm2", "norm2"),
            ):
                t = s[f"blocks.{i}.{a}.{p}"]
                o[f"body.{i}.{b}.{p}"] = t[:, :, None, None] if t.ndim == 2 else t
    for i in range(4):
        o[f"body.{i}.attn.bias"] = s[f"blocks.{i}.table"][relative_index(4)].permute(2, 0, 1)
    return o


def build(fixed):
    torch.manual_seed(81)
    original = SwinSR().eval()
    port = ResShiftNet(fixed).eval()
    port.load_state_dict(convert(original))
    return original, port, (torch.rand(1, 3, 12, 16),)

"""After osmr/imgclsmob#55.

SimplePose-mobile (up-sampling with pixel shuffle) in the TensorFlow edition of the model
zoo: with channels_last the key point heat maps are off, with the same weights.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

C, KP, UP = 8, 5, 2


class DwsConv(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.dw = nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False)
        self.dw_bn = nn.BatchNorm2d(cin)
        self.pw = nn.Conv2d(cin, cout, 1, bias=False)
        self.pw_bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu6(self.pw_bn(self.pw(F.relu6(self.dw_bn(self.dw(x))))))


class DUC(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout * UP * UP, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout * UP * UP)
        self.shuffle = nn.PixelShuffle(UP)

    def forward(self, x):
        return self.shuffle(F.relu(self.bn(self.conv(x))))


class SimplePoseMobile(nn.Module):
    def __init__(self):
        super().__init__()
        self.init_block = DwsConv(3, C, 2)
        self.stage1 = DwsConv(C, 2 * C, 2)
        self.up1 = DUC(2 * C, C)
        self.up2 = DUC(C, C)
        self.heatmap = nn.Conv2d(C, KP, 1)

    def forward(self, x):
        return self.heatmap(self.up2(self.up1(self.stage1(self.init_block(x)))))


class PixelShuffleLast(nn.Module):
    def __init__(self, factor, channel_major):
        super().__init__()
        self.factor = factor
        self.channel_major = channel_major

    def forward(self, x):
        n, h, w, c = x.shape
        f = self.factor
        c = c // (f * f)
        if self.channel_major:
            x = x.reshape(n, h, w, c, f, f).permute(0, 1, 4, 2, 5, 3)
        else:
            x = x.reshape(n, h, w, f, f, c).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(n, h * f, w * f, c)


class ConvLast(nn.Module):
    def __init__(self, cin, cout, k, stride=1, act="relu", depthwise=False):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(k, k, 1 if depthwise else cin, cout))
        self.bias = nn.Parameter(torch.empty(cout))
        self.stride, self.groups, self.act = stride, cin if depthwise else 1, act

    def forward(self, x):
        p = self.kernel.shape[0] // 2
        y = F.conv2d(x.movedim(-1, 1), self.kernel.permute(3, 2, 0, 1), self.bias, self.stride, p, groups=self.groups)
        y = y.movedim(1, -1)
        if self.act == "relu6":
            return y.clamp(0, 6)
        return y.clamp(min=0) if self.act == "relu" else y


class TFSimplePose(nn.Module):
    def __init__(self, channel_major):
        super().__init__()
        self.features = nn.Sequential(
            ConvLast(3, 3, 3, 2, "relu6", True),
            ConvLast(3, C, 1, 1, "relu6"),
            ConvLast(C, C, 3, 2, "relu6", True),
            ConvLast(C, 2 * C, 1, 1, "relu6"),
        )
        self.duc1 = nn.Sequential(ConvLast(2 * C, C * UP * UP, 3), PixelShuffleLast(UP, channel_major))
        self.duc2 = nn.Sequential(ConvLast(C, C * UP * UP, 3), PixelShuffleLast(UP, channel_major))
        self.final = ConvLast(C, KP, 1, act=None)

    def forward(self, x):
        y = self.final(self.duc2(self.duc1(self.features(x.permute(0, 2, 3, 1)))))
        return y.permute(0, 3, 1, 2)


def convert(sd):
    new = {}

    def fold(conv, bn, name):
        g = sd[bn + ".weight"] / (sd[bn + ".running_var"] + 1e-5).sqrt()
        new[name + ".kernel"] = (sd[conv + ".weight"] * g[:, None, None, None]).permute(2, 3, 1, 0).contiguous()
        new[name + ".bias"] = sd[bn + ".bias"] - sd[bn + ".running_mean"] * g

    for i, o in enumerate(("init_block", "stage1")):
        fold(o + ".dw", o + ".dw_bn", f"features.{2 * i}")
        fold(o + ".pw", o + ".pw_bn", f"features.{2 * i + 1}")
    fold("up1.conv", "up1.bn", "duc1.0"), fold("up2.conv", "up2.bn", "duc2.0")
    new["final.kernel"] = sd["heatmap.weight"].permute(2, 3, 1, 0).contiguous()
    new["final.bias"] = sd["heatmap.bias"]
    return new


def build(fixed):
    torch.manual_seed(55)
    original = SimplePoseMobile().eval()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.2), m.running_var.uniform_(0.1, 0.8)
            nn.init.uniform_(m.weight, 0.6, 1.4), nn.init.normal_(m.bias, 0.1, 0.2)
    port = TFSimplePose(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 3, 24, 16),)

"""After faustomilletari/VNet#10.

V-Net for volumetric prostate segmentation: the Caffe prototxt against a re-implementation
drawn from the figure of the paper.  Trained Caffe weights do not give the Caffe output.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

C = 6


class CaffePReLU(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(c) * 0.4)

    def forward(self, x):
        a = self.slope.view(-1, 1, 1, 1)
        return x.clamp(min=0) + a * x.clamp(max=0)


class CaffeVNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_in16_left = nn.Conv3d(1, C, 3, padding=1)
        self.outblock1_RELU = CaffePReLU(C)
        self.down_1 = nn.Conv3d(C, 2 * C, 2, 2)
        self.down_1_RELU = CaffePReLU(2 * C)
        self.conv_in8_left_1 = nn.Conv3d(2 * C, 2 * C, 3, padding=1)
        self.conv_in8_RELU_1 = CaffePReLU(2 * C)
        self.conv_in8_left_2 = nn.Conv3d(2 * C, 2 * C, 3, padding=1)
        self.outblock2_RELU = CaffePReLU(2 * C)
        self.up_1 = nn.ConvTranspose3d(2 * C, C, 2, 2)
        self.up_1_RELU = CaffePReLU(C)
        self.conv_in16_right = nn.Conv3d(2 * C, 2 * C, 3, padding=1)
        self.outblock3_RELU = CaffePReLU(2 * C)
        self.conv_out = nn.Conv3d(2 * C, 2, 1)

    def forward(self, data):
        l1 = self.outblock1_RELU(self.conv_in16_left(data) + data.repeat(1, C, 1, 1, 1))
        d = self.down_1_RELU(self.down_1(l1))
        h = self.conv_in8_left_2(self.conv_in8_RELU_1(self.conv_in8_left_1(d)))
        l2 = self.outblock2_RELU(h + d)
        u = torch.cat([self.up_1_RELU(self.up_1(l2)), l1], 1)
        r = self.outblock3_RELU(self.conv_in16_right(u) + u)
        return self.conv_out(r).softmax(1)


class LUConv(nn.Sequential):
    def __init__(self, c_in, c):
        super().__init__(nn.Conv3d(c_in, c, 3, padding=1), nn.PReLU(c))


class ResStage(nn.Module):
    def __init__(self, c_in, c, n, sum_first):
        super().__init__()
        self.sum_first = sum_first
        self.ops = nn.ModuleList(LUConv(c_in if i == 0 else c, c) for i in range(n))

    def forward(self, x):
        skip = x if x.shape[1] > 1 else x.expand(-1, self.ops[0][0].out_channels, -1, -1, -1)
        for op in self.ops[:-1]:
            x = op(x)
        conv, relu = self.ops[-1]
        if self.sum_first:
            return relu(conv(x) + skip)
        return relu(conv(x)) + skip


class VNet(nn.Module):
    def __init__(self, sum_first=(True, True, True)):
        super().__init__()
        self.in_tr = ResStage(1, C, 1, sum_first[0])
        self.down = nn.Sequential(nn.Conv3d(C, 2 * C, 2, 2), nn.PReLU(2 * C))
        self.down_tr = ResStage(2 * C, 2 * C, 2, sum_first[1])
        self.up_w = nn.Parameter(torch.empty(2 * C, C, 2, 2, 2))
        self.up_b = nn.Parameter(torch.empty(C))
        self.up_act = nn.PReLU(C)
        self.up_tr = ResStage(2 * C, 2 * C, 1, sum_first[2])
        self.out_tr = nn.Linear(2 * C, 2)

    def upsample(self, x):
        y = torch.einsum("ncdhw,coxyz->nodxhywz", x, self.up_w)
        n, o, d, _, h, _, w, _ = y.shape
        y = y.reshape(n, o, 2 * d, 2 * h, 2 * w) + self.up_b.view(-1, 1, 1, 1)
        return self.up_act(y)

    def forward(self, vol):
        out16 = self.in_tr(vol)
        out32 = self.down_tr(self.down(out16))
        out = self.up_tr(torch.cat((self.upsample(out32), out16), 1))
        return F.softmax(self.out_tr(out.movedim(1, -1)), dim=-1).movedim(-1, 1)


def convert(sd):
    new = {}

    def conv(o, n):
        new[n + ".weight"], new[n + ".bias"] = sd[o + ".weight"], sd[o + ".bias"]

    def act(o, n):
        new[n + ".weight"] = sd[o + ".slope"]

    conv("conv_in16_left", "in_tr.ops.0.0"), act("outblock1_RELU", "in_tr.ops.0.1")
    conv("down_1", "down.0"), act("down_1_RELU", "down.1")
    conv("conv_in8_left_1", "down_tr.ops.0.0"), act("conv_in8_RELU_1", "down_tr.ops.0.1")
    conv("conv_in8_left_2", "down_tr.ops.1.0"), act("outblock2_RELU", "down_tr.ops.1.1")
    new["up_w"], new["up_b"] = sd["up_1.weight"], sd["up_1.bias"]
    act("up_1_RELU", "up_act")
    conv("conv_in16_right", "up_tr.ops.0.0"), act("outblock3_RELU", "up_tr.ops.0.1")
    new["out_tr.weight"], new["out_tr.bias"] = sd["conv_out.weight"].flatten(1), sd["conv_out.bias"]
    return new


def build(fixed):
    torch.manual_seed(10)
    original = CaffeVNet().eval()
    with torch.no_grad():
        original.conv_out.weight.mul_(3)
    port = (VNet() if fixed else VNet((False, True, True))).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 1, 8, 8, 8),)

"""After microsoft/MMdnn#909.

MXNet Inception-BN converted to a PyTorch module by a graph converter.  Large precision
error between the source model and the generated file.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

NC = 6


class ConvFactory(nn.Module):
    def __init__(self, cin, cout, k, s=1, p=0):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, k, s, p)
        self.bn = nn.BatchNorm2d(cout, eps=2e-5)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


def mx_pool_avg(x, k=3, pad=1):
    x = F.pad(x, (pad,) * 4)
    return x.unfold(2, k, 1).unfold(3, k, 1).mean((-1, -2))


class InceptionFactoryA(nn.Module):
    def __init__(self, cin, n1, n3r, n3, nd3r, nd3, proj):
        super().__init__()
        self.c1x1 = ConvFactory(cin, n1, 1)
        self.c3x3r = ConvFactory(cin, n3r, 1)
        self.c3x3 = ConvFactory(n3r, n3, 3, 1, 1)
        self.cd3x3r = ConvFactory(cin, nd3r, 1)
        self.cd3x3_0 = ConvFactory(nd3r, nd3, 3, 1, 1)
        self.cd3x3_1 = ConvFactory(nd3, nd3, 3, 1, 1)
        self.cproj = ConvFactory(cin, proj, 1)

    def forward(self, x):
        return torch.cat(
            [
                self.c1x1(x),
                self.c3x3(self.c3x3r(x)),
                self.cd3x3_1(self.cd3x3_0(self.cd3x3r(x))),
                self.cproj(mx_pool_avg(x)),
            ],
            1,
        )


class MXInceptionBN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_1 = ConvFactory(3, 12, 5, 2, 2)
        self.inc_3a = InceptionFactoryA(12, 6, 4, 6, 4, 6, 8)
        self.inc_3b = InceptionFactoryA(26, 6, 4, 6, 4, 6, 8)
        self.fc1 = nn.Linear(26, NC)

    def forward(self, data):
        x = F.max_pool2d(self.conv_1(data), 2)
        x = self.inc_3b(self.inc_3a(x))
        return self.fc1(x.mean((2, 3))).softmax(1)


class KitModel(nn.Module):
    def __init__(self, count_include_pad):
        super().__init__()
        self.avg_attrs = dict(
            kernel_size=(3, 3), stride=(1, 1), padding=(1,), ceil_mode=False, count_include_pad=count_include_pad
        )
        self.conv_1 = nn.Conv2d(3, 12, 5, 2, 2)
        for blk, cin in (("3a", 12), ("3b", 26)):
            setattr(self, f"conv_{blk}_reduce", nn.Conv2d(cin, 14, 1))
            setattr(self, f"conv_{blk}_3x3", nn.Conv2d(4, 6, 3, 1, 1))
            setattr(self, f"conv_{blk}_double_3x3_0", nn.Conv2d(4, 6, 3, 1, 1))
            setattr(self, f"conv_{blk}_double_3x3_1", nn.Conv2d(6, 6, 3, 1, 1))
            setattr(self, f"conv_{blk}_proj", nn.Conv2d(cin, 8, 1))
        self.fc1 = nn.Conv2d(26, NC, 1)

    def inception(self, blk, x):
        m = lambda name: getattr(self, f"conv_{blk}_{name}")
        one, r3, rd = F.relu(m("reduce")(x)).split([6, 4, 4], 1)
        three = F.relu(m("3x3")(r3))
        double = F.relu(m("double_3x3_1")(F.relu(m("double_3x3_0")(rd))))
        pool = F.avg_pool2d(x, **self.avg_attrs)
        return torch.cat((one, three, double, F.relu(m("proj")(pool))), 1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv_1(x)), kernel_size=(2, 2), stride=(2, 2))
        x = self.inception("3b", self.inception("3a", x))
        global_pool = F.avg_pool2d(x, kernel_size=x.shape[2:])
        return F.softmax(self.fc1(global_pool).flatten(1), dim=1)


def convert(sd):
    def fold(p):
        g = sd[p + ".bn.weight"] / torch.sqrt(sd[p + ".bn.running_var"] + 2e-5)
        return (
            sd[p + ".conv.weight"] * g[:, None, None, None],
            (sd[p + ".conv.bias"] - sd[p + ".bn.running_mean"]) * g + sd[p + ".bn.bias"],
        )

    new = {"fc1.weight": sd["fc1.weight"][:, :, None, None], "fc1.bias": sd["fc1.bias"]}
    new["conv_1.weight"], new["conv_1.bias"] = fold("conv_1")
    for blk in ("3a", "3b"):
        o, n = f"inc_{blk}.", f"conv_{blk}_"
        parts = [fold(o + c) for c in ("c1x1", "c3x3r", "cd3x3r")]
        new[n + "reduce.weight"], new[n + "reduce.bias"] = (torch.cat(z) for z in zip(*parts))
        for a, b in (("c3x3", "3x3"), ("cd3x3_0", "double_3x3_0"), ("cd3x3_1", "double_3x3_1"), ("cproj", "proj")):
            new[n + b + ".weight"], new[n + b + ".bias"] = fold(o + a)
    return new


def build(fixed):
    torch.manual_seed(909)
    original = MXInceptionBN().eval()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1), m.running_var.uniform_(0.02, 0.2), nn.init.normal_(m.bias, 0.2, 0.2)
    port = KitModel(True if fixed else False).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(3, 3, 16, 16),)

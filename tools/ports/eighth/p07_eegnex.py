"""After braindecode/braindecode#739.

EEGNeX was taken over from the authors' Keras code into a PyTorch library of EEG decoders.
A user who put the layers of both side by side reported several places where they differ.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def same(k, d=1):
    total = d * (k - 1)
    return (total // 2, total - total // 2, 0, 0)


class KerasEEGNeX(nn.Module):
    """EEGNeX_8_32 with torch operations, layer names as Keras gives them."""

    def __init__(self, n_features=8, n_outputs=4, f1=4, f2=8, depth=2, n_times=128):
        super().__init__()
        self.conv2d = nn.Conv2d(1, f1, (1, 16), bias=False)
        self.layer_normalization = nn.BatchNorm2d(f1, eps=1e-3)
        self.conv2d_1 = nn.Conv2d(f1, f2, (1, 16), bias=False)
        self.layer_normalization_1 = nn.BatchNorm2d(f2, eps=1e-3)
        self.depthwise_conv2d = nn.Conv2d(f2, f2 * depth, (n_features, 1), groups=f2, bias=False)
        self.layer_normalization_2 = nn.BatchNorm2d(f2 * depth, eps=1e-3)
        self.conv2d_2 = nn.Conv2d(f2 * depth, f2, (1, 8), dilation=(1, 2), bias=False)
        self.layer_normalization_3 = nn.BatchNorm2d(f2, eps=1e-3)
        self.conv2d_3 = nn.Conv2d(f2, f1, (1, 8), dilation=(1, 4), bias=False)
        self.layer_normalization_4 = nn.BatchNorm2d(f1, eps=1e-3)
        self.dense = nn.Linear(f1 * (n_times // 32), n_outputs)

    def forward(self, x):
        x = x.unsqueeze(1)
        x = F.elu(self.layer_normalization(self.conv2d(F.pad(x, same(16)))))
        x = F.elu(self.layer_normalization_1(self.conv2d_1(F.pad(x, same(16)))))
        x = F.elu(self.layer_normalization_2(self.depthwise_conv2d(x)))
        x = F.avg_pool2d(x, (1, 4))
        x = F.elu(self.layer_normalization_3(self.conv2d_2(F.pad(x, same(8, 2)))))
        x = F.elu(self.layer_normalization_4(self.conv2d_3(F.pad(x, same(8, 4)))))
        x = F.avg_pool2d(x, (1, 8))
        return self.dense(x.flatten(1)).softmax(-1)


class Ensure4d(nn.Module):
    def forward(self, x):
        return x[:, None] if x.dim() == 3 else x


class EEGNeX(nn.Module):
    def __init__(
        self, n_chans=8, n_outputs=4, n_times=128, filter_1=4, filter_2=8, depth_multiplier=2, activation=nn.ELU
    ):
        super().__init__()
        filter_3 = filter_2 * depth_multiplier
        self.block_1 = nn.Sequential(
            Ensure4d(),
            nn.Conv2d(1, filter_1, (1, 16), padding="same", bias=False),
            nn.BatchNorm2d(filter_1, eps=1e-3),
            activation(),
        )
        self.block_2 = nn.Sequential(
            nn.Conv2d(filter_1, filter_2, (1, 16), padding="same", bias=False),
            nn.BatchNorm2d(filter_2, eps=1e-3),
            activation(),
        )
        self.block_3 = nn.Sequential(*self.spatial(n_chans, filter_2, filter_3, activation))
        self.block_4 = nn.Sequential(
            nn.Conv2d(filter_3, filter_2, (1, 8), dilation=(1, 2), padding="same", bias=False),
            nn.BatchNorm2d(filter_2, eps=1e-3),
            activation(),
        )
        self.block_5 = nn.Sequential(
            nn.Conv2d(filter_2, filter_1, (1, 8), dilation=(1, 4), padding="same", bias=False),
            nn.BatchNorm2d(filter_1, eps=1e-3),
            activation(),
            nn.AvgPool2d((1, 8)),
            nn.Dropout(0.5),
            nn.Flatten(),
        )
        self.final_layer = nn.Linear(filter_1 * (n_times // 32), n_outputs)

    def spatial(self, n_chans, filter_2, filter_3, activation):
        return [
            nn.Conv2d(filter_2, filter_3, (n_chans, 1), groups=filter_2, bias=False),
            nn.BatchNorm2d(filter_3, eps=1e-3),
            nn.AvgPool2d((1, 4)),
            nn.Dropout(0.5),
        ]

    def forward(self, x):
        for block in (self.block_1, self.block_2, self.block_3, self.block_4, self.block_5):
            x = block(x)
        return self.final_layer(x).softmax(dim=1)


class EEGNeXMended(EEGNeX):
    def spatial(self, n_chans, filter_2, filter_3, activation):
        layers = super().spatial(n_chans, filter_2, filter_3, activation)
        return layers[:2] + [activation()] + layers[2:]


def convert(sd):
    convs = ["conv2d", "conv2d_1", "depthwise_conv2d", "conv2d_2", "conv2d_3"]
    norms = ["layer_normalization"] + [f"layer_normalization_{i}" for i in range(1, 5)]
    out = {"final_layer." + p: sd["dense." + p] for p in ("weight", "bias")}
    for i, (c, n) in enumerate(zip(convs, norms)):
        at = 1 if i == 0 else 0
        out[f"block_{i + 1}.{at}.weight"] = sd[c + ".weight"]
        for p in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            out[f"block_{i + 1}.{at + 1}.{p}"] = sd[f"{n}.{p}"]
    return out


def build(fixed):
    torch.manual_seed(31)
    original = KerasEEGNeX()
    x = torch.randn(32, 8, 128)
    with torch.no_grad():
        for m in original.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.momentum = 1.0
                m.weight.uniform_(0.7, 1.4)
                m.bias.normal_(0, 0.3)
        original.train()(x)
        original.dense.weight.mul_(4)
    port = (EEGNeXMended if fixed else EEGNeX)()
    port.load_state_dict(convert(original.state_dict()))
    return original.eval(), port.eval(), (x[:6],)

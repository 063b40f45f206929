"""gmalivenko/pytorch2keras#120

A small LeNet with batch normalisation was moved to a channels-last model in the
manner of Keras, the arrays given by hand in a list per layer.  The two do not agree,
convolutions and dense layers having been compared one by one.
"""

import torch
import torch.nn.functional as F
from torch import nn


class LeNet(nn.Module):
    def __init__(self, num_classes=6):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 12, 5), nn.BatchNorm2d(12)
        self.fc1, self.bn3 = nn.Linear(12 * 4 * 4, 32), nn.BatchNorm1d(32)
        self.fc2, self.fc3 = nn.Linear(32, 24), nn.Linear(24, num_classes)

    def forward(self, x):
        x = F.max_pool2d(self.bn1(F.relu(self.conv1(x))), 2)
        x = F.max_pool2d(self.bn2(F.relu(self.conv2(x))), 2)
        x = self.bn3(F.relu(self.fc1(x.flatten(1))))
        return self.fc3(F.relu(self.fc2(x)))


class Conv2D(nn.Module):
    def __init__(self, n_in, filters, kernel_size, padding="valid"):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(kernel_size, kernel_size, n_in, filters))
        self.bias = nn.Parameter(torch.empty(filters))
        self.padding = padding

    def forward(self, x):
        k = self.kernel.shape[0]
        if self.padding == "same":
            x = F.pad(x, (0, 0, k // 2, k // 2, k // 2, k // 2))
        patches = x.unfold(1, k, 1).unfold(2, k, 1)
        return torch.relu(torch.einsum("nhwcij,ijco->nhwo", patches, self.kernel) + self.bias)


class BatchNormalization(nn.Module):
    def __init__(self, dim, epsilon=1e-5):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("moving_mean", torch.zeros(dim))
        self.register_buffer("moving_variance", torch.ones(dim))
        self.epsilon = epsilon

    def forward(self, x):
        inv = torch.rsqrt(self.moving_variance + self.epsilon) * self.gamma
        return x * inv + (self.beta - self.moving_mean * inv)


class MaxPooling2D(nn.Module):
    def forward(self, x):
        n, h, w, c = x.shape
        return x.view(n, h // 2, 2, w // 2, 2, c).amax((2, 4))


class Flatten(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0], -1)


class Dense(nn.Module):
    def __init__(self, n_in, units, activation="relu"):
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.empty(n_in, units)), nn.Parameter(torch.empty(units))
        self.activation = activation

    def forward(self, x):
        x = x @ self.kernel + self.bias
        return x.relu() if self.activation == "relu" else x


class KerasLeNet(nn.Module):
    def __init__(self, num_classes=6):
        super().__init__()
        self.conv2d, self.batch_normalization = Conv2D(1, 6, 5, "same"), BatchNormalization(6)
        self.max_pooling2d, self.flatten = MaxPooling2D(), Flatten()
        self.conv2d_1, self.batch_normalization_1 = Conv2D(6, 12, 5), BatchNormalization(12)
        self.dense, self.batch_normalization_2 = Dense(12 * 4 * 4, 32), BatchNormalization(32)
        self.dense_1, self.dense_2 = Dense(32, 24), Dense(24, num_classes, activation=None)

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = self.max_pooling2d(self.batch_normalization(self.conv2d(x)))
        x = self.max_pooling2d(self.batch_normalization_1(self.conv2d_1(x)))
        x = self.batch_normalization_2(self.dense(self.flatten(x)))
        return self.dense_2(self.dense_1(x))


BN_SLOTS = ("gamma", "beta", "moving_mean", "moving_variance")


def convert(sd, bn_list=("weight", "bias", "running_var", "running_mean")):
    out = {}
    for new, old in (("conv2d", "conv1"), ("conv2d_1", "conv2")):
        out[new + ".kernel"], out[new + ".bias"] = sd[old + ".weight"].permute(2, 3, 1, 0), sd[old + ".bias"]
    fc1 = sd["fc1.weight"].view(-1, 12, 4, 4).permute(2, 3, 1, 0).flatten(0, 2)
    out["dense.kernel"], out["dense.bias"] = fc1, sd["fc1.bias"]
    for new, old in (("dense_1", "fc2"), ("dense_2", "fc3")):
        out[new + ".kernel"], out[new + ".bias"] = sd[old + ".weight"].t(), sd[old + ".bias"]
    for new, old in (
        ("batch_normalization", "bn1"),
        ("batch_normalization_1", "bn2"),
        ("batch_normalization_2", "bn3"),
    ):
        arrays = [sd[f"{old}.{name}"] for name in bn_list]
        for slot, array in zip(BN_SLOTS, arrays):
            out[f"{new}.{slot}"] = array
    return {k: v.contiguous().clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(18)
    original = LeNet()
    for n, p in original.named_parameters():
        if "bn" in n:
            nn.init.normal_(p, 1.0 if n.endswith("weight") else 0.0, 0.2)
    images = torch.rand(32, 1, 24, 24) * 2.0
    for _ in range(30):
        original(images)
    original.eval()
    port = KerasLeNet().eval()
    order = ("weight", "bias", "running_mean", "running_var")
    port.load_state_dict(convert(original.state_dict(), order) if fixed else convert(original.state_dict()))
    return original, port, (images[:4],)

"""After keras-team/keras#5374: converting a channels-first (Theano order) classifier to a
channels-last one. Convolutions agree, the class scores do not."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class TheanoConvNet(nn.Module):
    def __init__(self, n_class=6):
        super().__init__()
        self.convolution2d_1 = nn.Conv2d(3, 8, 3, padding=1)
        self.convolution2d_2 = nn.Conv2d(8, 12, 3, padding=1)
        self.dense_1 = nn.Linear(12 * 4 * 5, 20)
        self.dense_2 = nn.Linear(20, n_class)

    def forward(self, img):
        x = F.max_pool2d(F.relu(self.convolution2d_1(img)), 2)
        x = F.max_pool2d(F.relu(self.convolution2d_2(x)), 2)
        x = F.relu(self.dense_1(x.flatten(1)))
        return self.dense_2(x)


class Conv2DLast(nn.Module):
    def __init__(self, c_in, c_out, k):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(k, k, c_in, c_out))
        self.bias = nn.Parameter(torch.zeros(c_out))

    def forward(self, x):
        kh, kw, ci, co = self.kernel.shape
        b, h, w, _ = x.shape
        x = F.pad(x, (0, 0, kw // 2, kw // 2, kh // 2, kh // 2))
        patches = x.unfold(1, kh, 1).unfold(2, kw, 1)
        cols = patches.permute(0, 1, 2, 4, 5, 3).reshape(b, h, w, kh * kw * ci)
        return cols @ self.kernel.reshape(-1, co) + self.bias


class Dense(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return x @ self.kernel + self.bias


def max_pool_last(x):
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).amax(dim=(2, 4))


class TensorFlowConvNet(nn.Module):
    def __init__(self, n_class=6):
        super().__init__()
        self.block1_conv = Conv2DLast(3, 8, 3)
        self.block2_conv = Conv2DLast(8, 12, 3)
        self.fc1 = Dense(12 * 4 * 5, 20)
        self.predictions = Dense(20, n_class)

    def forward(self, img):
        x = img.permute(0, 2, 3, 1)
        x = max_pool_last(self.block1_conv(x).relu())
        x = max_pool_last(self.block2_conv(x).relu())
        x = x.reshape(x.shape[0], -1)
        return self.predictions(self.fc1(x).relu())


def shuffle_rows(original_w, nb_last_conv, nb_rows_dense, fixed):
    converted_w = np.zeros(original_w.shape, dtype=original_w.dtype)
    count = 0
    for index in range(original_w.shape[0]):
        if index % nb_last_conv == 0 and index != 0:
            count += 1
        new_index = (index % nb_last_conv) * nb_rows_dense + count
        if fixed:
            converted_w[index] = original_w[new_index]
        else:
            converted_w[new_index] = original_w[index]
    return converted_w


def convert(th, tf, fixed):
    sd = {k: v.detach().numpy() for k, v in th.state_dict().items()}
    out = {}
    for a, b in (("convolution2d_1", "block1_conv"), ("convolution2d_2", "block2_conv")):
        out[f"{b}.kernel"] = np.transpose(sd[f"{a}.weight"], (2, 3, 1, 0))
        out[f"{b}.bias"] = sd[f"{a}.bias"]
    first = True
    for a, b in (("dense_1", "fc1"), ("dense_2", "predictions")):
        w = sd[f"{a}.weight"].T
        if first:
            w = shuffle_rows(w, 12, 20, fixed)
            first = False
        out[f"{b}.kernel"] = w
        out[f"{b}.bias"] = sd[f"{a}.bias"]
    tf.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in out.items()})


def build(fixed):
    torch.manual_seed(15)
    original = TheanoConvNet().eval()
    port = TensorFlowConvNet().eval()
    convert(original, port, fixed)
    return original, port, (torch.randn(2, 3, 16, 20),)

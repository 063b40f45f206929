"""After jyfeather/Tensorflow-DCN#1.

Deep & Cross Network for click prediction, re-implemented with broadcasting instead of
matrix products.  Scores for the same embeddings and weights do not agree with the
reference's.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

FIELDS, VOC, ED, DENSE = 4, 15, 4, 3
DIM = FIELDS * ED + DENSE
CROSS, HID = 3, (20, 12)


class CrossNet(nn.Module):
    """x_{l+1} = x_0 (x_l . w_l) + b_l + x_l"""

    def __init__(self):
        super().__init__()
        self.kernels = nn.ParameterList(torch.randn(DIM, 1) * 0.4 for _ in range(CROSS))
        self.bias = nn.ParameterList(torch.randn(DIM, 1) * 0.1 for _ in range(CROSS))

    def forward(self, inputs):
        x_0 = inputs.unsqueeze(2)
        x_l = x_0
        for w, b in zip(self.kernels, self.bias):
            xl_w = torch.tensordot(x_l, w, dims=([1], [0]))
            x_l = torch.matmul(x_0, xl_w) + b + x_l
        return x_l.squeeze(2)


class ReferenceDCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(VOC, ED) for _ in range(FIELDS))
        self.crossnet = CrossNet()
        self.dnn = nn.Sequential(nn.Linear(DIM, HID[0]), nn.ReLU(), nn.Linear(HID[0], HID[1]), nn.ReLU())
        self.dnn_linear = nn.Linear(DIM + HID[1], 1)

    def forward(self, sparse, dense):
        e = [emb(sparse[:, i]) for i, emb in enumerate(self.embeddings)]
        x = torch.cat(e + [dense], 1)
        return torch.sigmoid(self.dnn_linear(torch.cat([self.crossnet(x), self.dnn(x)], 1)))


class CrossLayer(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.w = nn.Parameter(torch.empty(DIM, 1))
        self.b = nn.Parameter(torch.empty(DIM))

    def forward(self, x0, x):
        x0_broad = x0[:, :, None]
        x_broad = x[:, None, :]
        w = self.w.transpose(0, 1) if self.fixed else self.w
        mid = x0_broad * x_broad * w
        return mid.sum(-1) + self.b + x


class BroadcastDCN(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.table = nn.Parameter(torch.empty(FIELDS * VOC, ED))
        self.register_buffer("offsets", torch.arange(FIELDS) * VOC, persistent=False)
        self.cross = nn.ModuleList(CrossLayer(fixed) for _ in range(CROSS))
        self.deep_w = nn.ParameterList([torch.empty(DIM, HID[0]), torch.empty(HID[0], HID[1])])
        self.deep_b = nn.ParameterList([torch.empty(HID[0]), torch.empty(HID[1])])
        self.out_cross = nn.Linear(DIM, 1, bias=False)
        self.out_deep = nn.Linear(HID[1], 1)

    def forward(self, feat_index, feat_value):
        emb = F.embedding(feat_index + self.offsets, self.table).flatten(1)
        x0 = torch.hstack([emb, feat_value])
        x = x0
        for layer in self.cross:
            x = layer(x0, x)
        y = x0
        for w, b in zip(self.deep_w, self.deep_b):
            y = F.relu(y @ w + b)
        return torch.sigmoid(self.out_cross(x) + self.out_deep(y))


def convert(sd):
    new = {"table": torch.cat([sd[f"embeddings.{i}.weight"] for i in range(FIELDS)])}
    for i in range(CROSS):
        new[f"cross.{i}.w"] = sd[f"crossnet.kernels.{i}"]
        new[f"cross.{i}.b"] = sd[f"crossnet.bias.{i}"].squeeze(1)
    for i, k in enumerate((0, 2)):
        new[f"deep_w.{i}"], new[f"deep_b.{i}"] = sd[f"dnn.{k}.weight"].T.contiguous(), sd[f"dnn.{k}.bias"]
    new["out_cross.weight"], new["out_deep.weight"] = sd["dnn_linear.weight"].split([DIM, HID[1]], 1)
    new["out_deep.bias"] = sd["dnn_linear.bias"]
    return new


def build(fixed):
    torch.manual_seed(1)
    original = ReferenceDCN().eval()
    with torch.no_grad():
        for emb in original.embeddings:
            emb.weight.mul_(0.5)
    port = BroadcastDCN(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, VOC, (8, FIELDS)), torch.randn(8, DENSE) * 0.5)

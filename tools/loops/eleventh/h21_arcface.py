"""After TreB1eN/InsightFace_Pytorch.

Additive angular margin with scale 64: the loss starts at forty or more, far above
log(classes), and no weight decay on batch norm.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class Backbone(nn.Module):
    def __init__(self, d_in=24, d=64, emb=32):
        super().__init__()
        self.input_layer = nn.Sequential(nn.Linear(d_in, d, bias=False), nn.BatchNorm1d(d), nn.PReLU(d))
        self.body = nn.Sequential(nn.Linear(d, d, bias=False), nn.BatchNorm1d(d), nn.PReLU(d))
        self.output_layer = nn.Sequential(nn.Linear(d, emb), nn.BatchNorm1d(emb))

    def forward(self, x):
        x = self.input_layer(x)
        return F.normalize(self.output_layer(x + self.body(x)))


class Arcface(nn.Module):
    def __init__(self, embedding_size=32, classnum=20, s=64.0, m=0.5):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(embedding_size, classnum))
        self.kernel.data.uniform_(-1, 1).renorm_(2, 1, 1e-5).mul_(1e5)
        self.s = s
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)
        self.mm = self.sin_m * m
        self.threshold = math.cos(math.pi - m)

    def forward(self, embeddings, label):
        cos_theta = (embeddings @ F.normalize(self.kernel, dim=0)).clamp(-1, 1)
        sin_theta = torch.sqrt((1 - cos_theta**2).clamp_min(1e-9))
        cos_theta_m = cos_theta * self.cos_m - sin_theta * self.sin_m
        keep_val = cos_theta - self.mm
        cos_theta_m = torch.where(cos_theta - self.threshold <= 0, keep_val, cos_theta_m)
        idx = torch.arange(len(embeddings))
        output = cos_theta.clone()
        output[idx, label] = cos_theta_m[idx, label]
        return output * self.s


class FaceLearner(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.head = Backbone(), Arcface()


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    ident = torch.randn(20, 24)
    y = torch.arange(800) % 20
    x = ident[y] + 0.4 * torch.randn(800, 24)
    learner = FaceLearner()
    paras_only_bn, paras_wo_bn = [], []
    for m in learner.model.modules():
        for p in m.parameters(recurse=False):
            (paras_only_bn if isinstance(m, nn.BatchNorm1d) else paras_wo_bn).append(p)
    optimizer = torch.optim.SGD(
        [{"params": paras_wo_bn + [learner.head.kernel], "weight_decay": 5e-4}, {"params": paras_only_bn}],
        lr=0.05,
        momentum=0.9,
    )
    tick.model(learner)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(12):
        if epoch == 8:
            for g in optimizer.param_groups:
                g["lr"] /= 10
        for rows in torch.randperm(800).split(50):
            optimizer.zero_grad()
            thetas = learner.head(learner.model(x[rows]), y[rows])
            loss = F.cross_entropy(thetas, y[rows])
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    learner.eval()
    LAST = ((learner.model(x) @ F.normalize(learner.head.kernel, dim=0)).argmax(1) == y).float().mean().item()
    return losses

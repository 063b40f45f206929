"""After fungtion/DANN: domain-adversarial training with a gradient reversal layer; the
domain losses go up to ln 2 while the labels of the source are learnt."""

import math

import torch
import torch.nn as nn
from torch.autograd import Function


class ReverseLayerF(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class CNNModel(nn.Module):
    def __init__(self, d=12, n_class=4):
        super().__init__()
        self.feature = nn.Sequential(nn.Linear(d, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.class_classifier = nn.Sequential(
            nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, n_class), nn.LogSoftmax(dim=1)
        )
        self.domain_classifier = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2), nn.LogSoftmax(dim=1))

    def forward(self, x, alpha):
        feature = self.feature(x)
        return (self.class_classifier(feature), self.domain_classifier(ReverseLayerF.apply(feature, alpha)))


def train(tick, mended=False):
    torch.manual_seed(8)
    centers = 2 * torch.randn(4, 12)
    shift = 1.5 * torch.randn(12)
    my_net = CNNModel()
    optimizer = torch.optim.Adam(my_net.parameters(), lr=3e-3)
    loss_class, loss_domain = nn.NLLLoss(), nn.NLLLoss()
    n, losses = 250, []
    tick.model(my_net)
    tick.optimizer(optimizer)
    for i in range(n):
        p = i / n
        alpha = 2.0 / (1.0 + math.exp(-10 * p)) - 1
        s_label, t_label = torch.randint(0, 4, (2, 32))
        s_img = centers[s_label] + torch.randn(32, 12)
        t_img = centers[t_label] + shift + torch.randn(32, 12)
        my_net.zero_grad()
        class_output, domain_output = my_net(s_img, alpha)
        err_s_label = loss_class(class_output, s_label)
        err_s_domain = loss_domain(domain_output, torch.zeros(32, dtype=torch.long))
        _t_class, domain_output = my_net(t_img, alpha)
        err_t_domain = loss_domain(domain_output, torch.ones(32, dtype=torch.long))
        err = err_t_domain + err_s_domain + err_s_label
        err.backward()
        optimizer.step()
        tick.step(err)
        losses.append(err.item())
    return losses

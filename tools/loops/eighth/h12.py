"""fungtion/DANN: domain adversarial training with a gradient reversal layer; the domain losses stay near log 2,
which is the purpose."""

import math

import torch
import torch.nn as nn


class ReverseLayerF(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class CNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature = nn.Sequential(
            nn.Conv2d(1, 12, 3),
            nn.BatchNorm2d(12),
            nn.MaxPool2d(2),
            nn.ReLU(True),
            nn.Conv2d(12, 16, 3),
            nn.BatchNorm2d(16),
            nn.ReLU(True),
        )
        self.class_classifier = nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(True), nn.Linear(32, 4), nn.LogSoftmax(dim=1)
        )
        self.domain_classifier = nn.Sequential(
            nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(True), nn.Linear(24, 2), nn.LogSoftmax(dim=1)
        )

    def forward(self, input_data, alpha):
        feature = self.feature(input_data).flatten(1)
        return self.class_classifier(feature), self.domain_classifier(ReverseLayerF.apply(feature, alpha))


def digits(n, proto, foreign):
    y = torch.randint(0, 4, (n,))
    x = proto[y] + 0.5 * torch.randn(n, 1, 10, 10)
    if foreign:
        x = 0.8 * x + 0.6 * torch.linspace(-1, 1, 10)[None, None, None]
    return x, y


def train(tick, mended=False):
    torch.manual_seed(0)
    proto = torch.randn(4, 1, 10, 10)
    s_img, s_label = digits(480, proto, False)
    t_img, t_label = digits(480, proto, True)
    my_net = CNNModel()
    optimizer = torch.optim.Adam(my_net.parameters(), lr=1e-3)
    loss_class, loss_domain = nn.NLLLoss(), nn.NLLLoss()
    n_epoch, batch = 8, 32
    len_loader = 480 // batch
    tick.model(my_net)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(n_epoch):
        for i in range(len_loader):
            p = (i + epoch * len_loader) / n_epoch / len_loader
            alpha = 2.0 / (1.0 + math.exp(-10 * p)) - 1
            a, b = torch.randint(0, 480, (batch,)), torch.randint(0, 480, (batch,))
            my_net.zero_grad()
            class_output, domain_output = my_net(s_img[a], alpha)
            err_s_label = loss_class(class_output, s_label[a])
            err_s_domain = loss_domain(domain_output, torch.zeros(batch).long())
            _, domain_output = my_net(t_img[b], alpha)
            err_t_domain = loss_domain(domain_output, torch.ones(batch).long())
            err = err_t_domain + err_s_domain + err_s_label
            err.backward()
            optimizer.step()
            losses.append(err.item())
            tick.step(err)
    my_net.eval()
    with torch.no_grad():
        train.final = (my_net(t_img, 0)[0].argmax(1) == t_label).float().mean().item()
    return losses

"""dragen1860/MAML-Pytorch: meta learning on sines; five inner steps with functional weights, second-order gradients for
the start weights; the loss is that of unseen tasks and stays noisy."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Learner(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.vars = nn.ParameterList()
        for i, o in ((1, hidden), (hidden, hidden), (hidden, 1)):
            w = nn.Parameter(torch.empty(o, i))
            nn.init.kaiming_normal_(w)
            self.vars.append(w)
            self.vars.append(nn.Parameter(torch.zeros(o)))

    def forward(self, x, vars=None):
        vars = list(self.vars) if vars is None else vars
        for k in range(0, len(vars) - 2, 2):
            x = F.relu(F.linear(x, vars[k], vars[k + 1]))
        return F.linear(x, vars[-2], vars[-1])


class Meta(nn.Module):
    def __init__(self, update_lr=0.02, update_step=3):
        super().__init__()
        self.update_lr, self.update_step = update_lr, update_step
        self.net = Learner()

    def adapt(self, x_spt, y_spt, create_graph):
        fast = list(self.net.vars)
        for _ in range(self.update_step):
            loss = F.mse_loss(self.net(x_spt, fast), y_spt)
            grads = torch.autograd.grad(loss, fast, create_graph=create_graph)
            fast = [w - self.update_lr * g for w, g in zip(fast, grads)]
        return fast

    def forward(self, tasks):
        losses_q = 0
        for x_spt, y_spt, x_qry, y_qry in tasks:
            fast = self.adapt(x_spt, y_spt, create_graph=True)
            losses_q = losses_q + F.mse_loss(self.net(x_qry, fast), y_qry)
        return losses_q / len(tasks)


def sine_tasks(n, k=10):
    out = []
    for _ in range(n):
        amp, phase = 1 + 3 * torch.rand(1), math.pi * torch.rand(1)
        x = torch.rand(2 * k, 1) * 6 - 3
        y = amp * torch.sin(x + phase)
        out.append((x[:k], y[:k], x[k:], y[k:]))
    return out


def train(tick, mended=False):
    torch.manual_seed(222)
    maml = Meta()
    meta_optim = torch.optim.Adam(maml.net.parameters(), lr=5e-3)
    test_tasks = sine_tasks(40)

    def test():
        return sum(F.mse_loss(maml.net(xq, maml.adapt(xs, ys, False)), yq).item() for xs, ys, xq, yq in test_tasks) / 40

    before = test()
    tick.model(maml)
    tick.optimizer(meta_optim)
    losses = []
    for _step in range(150):
        loss_q = maml(sine_tasks(4))
        meta_optim.zero_grad()
        loss_q.backward()
        meta_optim.step()
        losses.append(loss_q.item())
        tick.step(loss_q)
    train.final = (before, test())
    return losses

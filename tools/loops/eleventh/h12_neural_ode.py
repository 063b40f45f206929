"""After rtqichen/torchdiffeq (examples/ode_demo.py).

Spiral fitted by a neural ODE: weights N(0, 0.1), RMSprop, tiny mini-batches of
trajectory pieces, jumpy loss.
"""

import torch
from torch import nn

TRUE_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


def odeint(func, y0, t):
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        h, y = t1 - t0, ys[-1]
        k1 = func(t0, y)
        k2 = func(t0 + h / 2, y + h / 2 * k1)
        k3 = func(t0 + h / 2, y + h / 2 * k2)
        k4 = func(t1, y + h * k3)
        ys.append(y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    return torch.stack(ys)


class Lambda(nn.Module):
    def forward(self, t, y):
        return (y**3) @ TRUE_A


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


def get_batch(true_y, t, batch_time, batch_size):
    s = torch.randperm(len(t) - batch_time)[:batch_size]
    batch_y = torch.stack([true_y[s + i] for i in range(batch_time)])
    return true_y[s], t[:batch_time], batch_y


def train(tick, mended=False):
    torch.manual_seed(0)
    t = torch.linspace(0.0, 25.0, 500)
    with torch.no_grad():
        true_y = odeint(Lambda(), torch.tensor([[2.0, 0.0]]), t)[:, 0]
    func = ODEFunc()
    optimizer = torch.optim.RMSprop(func.parameters(), lr=2e-3)
    tick.model(func)
    tick.optimizer(optimizer)
    losses = []
    for itr in range(200):
        optimizer.zero_grad()
        batch_y0, batch_t, batch_y = get_batch(true_y, t, 8, 20)
        pred_y = odeint(func, batch_y0, batch_t)
        loss = torch.mean(torch.abs(pred_y - batch_y))
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

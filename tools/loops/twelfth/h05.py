"""A physics-informed net for Burgers' equation, LBFGS on full batches, after EdgarAMO/PINN-Burgers."""

import math
import torch
import torch.nn as nn


class Network(nn.Module):
    def __init__(self, hidden_size=20, depth=3):
        super().__init__()
        layers = [nn.Linear(2, hidden_size), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(hidden_size, hidden_size), nn.Tanh()]
        layers.append(nn.Linear(hidden_size, 1))
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class PINN:
    def __init__(self, n=20, nu=0.1):
        self.model = Network().double()
        self.nu = nu
        x = torch.linspace(-1, 1, n, dtype=torch.double)
        t = torch.linspace(0, 1, n, dtype=torch.double)
        self.X = torch.cartesian_prod(x, t).requires_grad_(True)
        zeros, ones = torch.zeros_like(t), torch.ones_like(t)
        bc1, bc2 = torch.stack([-ones, t], 1), torch.stack([ones, t], 1)
        ic = torch.stack([x, zeros], 1)
        self.X_train = torch.cat([bc1, bc2, ic])
        self.y_train = torch.cat([zeros, zeros, -torch.sin(math.pi * x)])[:, None]
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.LBFGS(
            self.model.parameters(), lr=1.0, max_iter=8, history_size=50, line_search_fn="strong_wolfe"
        )

    def loss_func(self):
        self.optimizer.zero_grad()
        loss_data = self.criterion(self.model(self.X_train), self.y_train)
        u = self.model(self.X)
        du = torch.autograd.grad(u.sum(), self.X, create_graph=True)[0]
        du_dx, du_dt = du[:, :1], du[:, 1:]
        du_dxx = torch.autograd.grad(du_dx.sum(), self.X, create_graph=True)[0][:, :1]
        loss_pde = self.criterion(du_dt + u * du_dx, self.nu * du_dxx)
        loss = loss_pde + loss_data
        loss.backward()
        return loss


def train(tick, mended=False):
    torch.manual_seed(35)
    net = PINN()
    tick.model(net.model)
    tick.optimizer(net.optimizer)
    losses = []
    for step in range(30):
        loss = net.optimizer.step(net.loss_func)
        tick.step(loss)
        losses.append(loss.item())
    return losses

"""After jayroxis/PINNs#6.

Burgers' equation with a physics-informed network: a phase with Adam on the loss function
of the Net class.  A reader asked about one call in loss_func.
"""

import math

import torch
import torch.nn as nn


class NN(nn.Module):
    def __init__(self, hidden=24, depth=3):
        super().__init__()
        layers = [nn.Linear(2, hidden), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(hidden, hidden), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, 1))

    def forward(self, x):
        return self.layers(x)


class Net:
    def __init__(self, mended):
        self.mended = mended
        self.model = NN()
        x = torch.linspace(-1, 1, 24)
        t = torch.linspace(0, 1, 12)
        self.X = torch.stack(torch.meshgrid(x, t, indexing="ij")).reshape(2, -1).T
        self.X.requires_grad = True
        bc1 = torch.stack([torch.full_like(t, -1.0), t], 1)
        bc2 = torch.stack([torch.full_like(t, 1.0), t], 1)
        ic = torch.stack([x, torch.zeros_like(x)], 1)
        self.X_train = torch.cat([bc1, bc2, ic])
        y_ic = -torch.sin(math.pi * ic[:, :1])
        self.y_train = torch.cat([torch.zeros(24, 1), y_ic])
        self.criterion = nn.MSELoss()
        self.nu = 0.1
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def loss_func(self):
        if self.mended:
            self.adam.zero_grad()
        loss_data = self.criterion(self.model(self.X_train), self.y_train)
        u = self.model(self.X)
        du_dX = torch.autograd.grad(u, self.X, torch.ones_like(u), create_graph=True)[0]
        du_dx, du_dt = du_dX[:, 0], du_dX[:, 1]
        du_dxx = torch.autograd.grad(
            du_dX, self.X, torch.ones_like(du_dX) * torch.tensor([1.0, 0.0]), create_graph=True
        )[0][:, 0]
        residual = du_dt + u.squeeze(1) * du_dx - self.nu * du_dxx
        loss_pde = self.criterion(residual, torch.zeros_like(residual))
        loss = loss_pde + loss_data
        loss.backward()
        return loss


def train(tick, mended=False):
    torch.manual_seed(6)
    net = Net(mended)
    losses = []
    tick.model(net.model)
    tick.optimizer(net.adam)
    net.model.train()
    for _i in range(300):
        loss = net.loss_func()
        net.adam.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

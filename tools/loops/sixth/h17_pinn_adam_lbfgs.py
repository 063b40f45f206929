"""jayroxis/PINNs#4: "why two optimizers are needed during the training?" """

import itertools

import torch
from torch import nn

STEPS = 120
OTHERS: list = []
LOG: list = []


class DNN(nn.Module):
    def __init__(self, layers):
        super().__init__()
        mods = []
        for a, b in itertools.pairwise(layers[:-1]):
            mods += [nn.Linear(a, b), nn.Tanh()]
        self.layers = nn.Sequential(*mods, nn.Linear(layers[-2], layers[-1]))

    def forward(self, x):
        return self.layers(x)


class PhysicsInformedNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.dnn = DNN([1, 20, 20, 1])
        self.lambda_1 = nn.Parameter(torch.tensor([0.5]))

    def net_f(self, x):
        x = x.clone().requires_grad_(True)
        u = self.dnn(x)
        u_x = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
        return u_xx + self.lambda_1 * u


def build(bad: bool):
    torch.manual_seed(47)
    LOG.clear()
    OTHERS.clear()
    model = PhysicsInformedNN()
    x = torch.linspace(0, 3, 40)[:, None]
    u = torch.sin(2 * x)
    optimizer_adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=1.0, max_iter=5, history_size=20, line_search_fn="strong_wolfe"
    )
    OTHERS.append(optimizer)

    def loss_func():
        loss = (model.dnn(x) - u).pow(2).mean() + 0.1 * model.net_f(x).pow(2).mean()
        model.zero_grad()
        loss.backward()
        return loss

    def step(i):
        if i < 70:
            loss = loss_func()
            optimizer_adam.step()
        else:
            loss = optimizer.step(loss_func)
        LOG.append(loss.item())

    return model, optimizer_adam, step

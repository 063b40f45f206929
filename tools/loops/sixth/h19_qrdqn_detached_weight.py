"""senya-ashukha/quantile-regression-dqn-pytorch#2: "there is a detach() on diff, could you please explain?" """

import torch
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


def huber(x, k=1.0):
    return torch.where(x.abs() < k, 0.5 * x.pow(2), k * (x.abs() - 0.5 * k))


class QuantileNet(nn.Module):
    def __init__(self, len_state, num_quant, num_actions):
        super().__init__()
        self.num_quant, self.num_actions = num_quant, num_actions
        self.layer1 = nn.Linear(len_state, 48)
        self.layer2 = nn.Linear(48, num_actions * num_quant)

    def forward(self, x):
        return self.layer2(torch.tanh(self.layer1(x))).view(-1, self.num_actions, self.num_quant)


def build(bad: bool):
    torch.manual_seed(49)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(49)
    n = 8
    Z, Ztgt = QuantileNet(5, n, 2), QuantileNet(5, n, 2)
    Ztgt.load_state_dict(Z.state_dict())
    Ztgt.requires_grad_(False)
    optimizer = torch.optim.Adam(Z.parameters(), 3e-3)
    tau = ((2 * torch.arange(n) + 1) / (2.0 * n)).view(1, -1)
    eye = torch.eye(5)

    def step(i):
        s = torch.randint(0, 5, (64,), generator=gen)
        a = torch.randint(0, 2, (64,), generator=gen)
        s2 = torch.where(a == 1, s + 1, torch.zeros_like(s))
        done = (s2 == 5).float()
        r = 4.0 * done + 0.2 * torch.randn(64, generator=gen)
        theta = Z(eye[s])[torch.arange(64), a]
        Znext = Ztgt(eye[s2.clamp(max=4)])
        Znext_max = Znext[torch.arange(64), Znext.mean(2).argmax(1)]
        Ttheta = r[:, None] + 0.9 * (1 - done[:, None]) * Znext_max
        diff = Ttheta.t().unsqueeze(-1) - theta
        loss = (huber(diff) * (tau - (diff.detach() < 0).float()).abs()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 8 == 7:
            Ztgt.load_state_dict(Z.state_dict())
        with torch.no_grad():
            best = 4 * 0.9 ** torch.arange(4, -1, -1.0)
            LOG.append((Z(eye).mean(2)[:, 1] - best).abs().mean().item())

    return Z, optimizer, step

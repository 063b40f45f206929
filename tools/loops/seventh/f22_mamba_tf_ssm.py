"""vedant-jumle/Mamba-tf#2: "I think A_log is trainable, right?"

Rebuilt: a small selective state-space model without the convolution, on a signal with two very different time
constants (a slow leaky sum of one channel, a fast one of the other).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelectiveSSM(nn.Module):
    def __init__(self, d_inner=6, d_state=4, dt_rank=2, mended=False):
        super().__init__()
        self.d_state, self.dt_rank = d_state, dt_rank
        A = torch.arange(1, d_state + 1, dtype=torch.float32).repeat(d_inner, 1)
        if mended:
            self.A_log = nn.Parameter(torch.log(A))
        else:
            self.register_buffer("A_log", torch.log(A))
        self.D = nn.Parameter(torch.ones(d_inner))
        self.x_proj = nn.Linear(d_inner, 2 * d_state, bias=False)
        self.dt = 0.25

    def forward(self, x):
        A = -torch.exp(self.A_log)
        B, C = self.x_proj(x).split(self.d_state, dim=-1)
        dA = torch.exp(self.dt * A)
        h = torch.zeros(x.size(0), *self.A_log.shape)
        ys = []
        for t in range(x.size(1)):
            h = dA * h + self.dt * B[:, t, None, :] * x[:, t, :, None]
            ys.append((h * C[:, t, None, :]).sum(-1))
        return torch.stack(ys, dim=1) + x * self.D


class ResidualBlock(nn.Module):
    def __init__(self, d_model=6, mended=False):
        super().__init__()
        self.in_proj = nn.Linear(d_model, d_model)
        self.ssm = SelectiveSSM(d_model, mended=mended)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return x + self.out_proj(self.ssm(self.in_proj(x)))


class MambaRegressor(nn.Module):
    def __init__(self, mended=False):
        super().__init__()
        self.embed = nn.Linear(3, 6)
        self.block = ResidualBlock(6, mended)
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.block(self.embed(x))).squeeze(-1)


def leaky_signal(n, T=30):
    x = torch.zeros(n, T, 3)
    x[..., 0] = (torch.rand(n, T) < 0.15).float() * torch.sign(torch.randn(n, T))
    x[..., 1] = 0.1 * torch.randn(n, T)
    x[..., 2] = 1.0
    slow = torch.zeros(n)
    ys = []
    for t in range(T):
        slow = 0.985 * slow + x[:, t, 0]
        ys.append(0.7 * slow + x[:, t, 1])
    return x, torch.stack(ys, 1)


def train(tick, mended=False):
    torch.manual_seed(83)
    model = MambaRegressor(mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(200):
        x, y = leaky_signal(32)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, y)
    with torch.no_grad():
        x, y = leaky_signal(300)
        r2 = 1 - ((model(x) - y) ** 2).mean().item() / y.var().item()
    return history, r2


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print("mended" if mended else "as is", f"first {h[0]:.4f} last20 {sum(h[-20:]) / 20:.4f}", f"r2 {metric:.3f}")

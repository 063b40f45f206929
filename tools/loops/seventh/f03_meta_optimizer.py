"""ikostrikov/pytorch-meta-optimizer#11: "LSTM weights not optimised"; after the change the training went on.

Rebuilt: learning to learn by gradient descent: a coordinate-wise LSTM proposes the updates for random quadratics and
is trained on the loss along its own trajectory.
"""

import torch
import torch.nn as nn


class LayerNormLSTMCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.fiou = nn.Linear(input_size + hidden_size, 4 * hidden_size)
        self.norm = nn.LayerNorm(4 * hidden_size)

    def forward(self, x, state):
        hx, cx = state
        f, i, o, u = self.norm(self.fiou(torch.cat([x, hx], dim=1))).chunk(4, dim=1)
        cx = torch.sigmoid(f + 1) * cx + torch.sigmoid(i) * torch.tanh(u)
        hx = torch.sigmoid(o) * torch.tanh(cx)
        return hx, cx


class MetaOptimizer(nn.Module):
    def __init__(self, num_layers=2, hidden_size=12, mended=False):
        super().__init__()
        self.hidden_size = hidden_size
        self.linear1 = nn.Linear(2, hidden_size)
        self.ln1 = nn.LayerNorm(hidden_size)
        lstms = []
        for _ in range(num_layers):
            lstms.append(LayerNormLSTMCell(hidden_size, hidden_size))
        self.lstms = nn.ModuleList(lstms) if mended else lstms
        self.linear2 = nn.Linear(hidden_size, 1)
        with torch.no_grad():
            self.linear2.weight.mul_(0.1)
            self.linear2.bias.zero_()

    def reset(self, n):
        self.states = [(torch.zeros(n, self.hidden_size), torch.zeros(n, self.hidden_size)) for _ in self.lstms]

    def forward(self, grads):
        g = grads.reshape(-1, 1)
        x = torch.cat([torch.log(g.abs() + 1e-8) / 10, torch.sign(g)], dim=1)
        x = torch.tanh(self.ln1(self.linear1(x)))
        for i, cell in enumerate(self.lstms):
            self.states[i] = cell(x, self.states[i])
            x = self.states[i][0]
        return self.linear2(x).reshape(grads.shape)


def sample_problem(batch=8, dim=6):
    A = torch.randn(batch, dim, dim) / dim**0.5 + torch.eye(dim)
    b = torch.randn(batch, dim)
    return A, b


def objective(theta, A, b):
    return ((torch.bmm(A, theta[:, :, None]).squeeze(2) - b) ** 2).mean(1)


def unroll(meta, theta, A, b, steps):
    meta.reset(theta.numel())
    losses = []
    for _ in range(steps):
        with torch.enable_grad():
            t = theta.detach().requires_grad_(True)
            (grad,) = torch.autograd.grad(objective(t, A, b).sum(), t)
        theta = theta + meta(grad)
        losses.append(objective(theta, A, b).mean())
    return torch.stack(losses)


def train(tick, mended=False):
    torch.manual_seed(3)
    meta_optimizer = MetaOptimizer(mended=mended)
    optimizer = torch.optim.Adam(meta_optimizer.parameters(), lr=5e-3)
    tick.model(meta_optimizer)
    tick.optimizer(optimizer)
    history = []
    for _it in range(150):
        A, b = sample_problem()
        theta = torch.randn(8, 6)
        losses = unroll(meta_optimizer, theta, A, b, steps=12)
        loss = losses.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(meta_optimizer.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, theta, b)
    with torch.no_grad():
        A, b = sample_problem(256)
        final = unroll(meta_optimizer, torch.randn(256, 6), A, b, steps=12)[-1].item()
    return history, final


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
        print(
            "mended" if mended else "as is",
            f"first {h[0]:.4f} last10 {sum(h[-10:]) / 10:.4f}",
            f"final objective {metric:.3f}",
        )

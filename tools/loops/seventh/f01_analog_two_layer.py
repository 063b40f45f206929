"""IBM/aihwkit#446: the first two examples (simple layer, multiple layers) miss a call in the loop; with more
iterations the loss goes down and then up again.

Rebuilt: a small stack of "analog" layers (noisy, clipped crossbar weights) fitted to a table of targets with plain
SGD.
"""

import torch
import torch.nn as nn
from torch.nn.functional import mse_loss


class AnalogLinear(nn.Linear):
    def __init__(self, in_features, out_features, w_noise=0.005, inp_bound=4.0):
        super().__init__(in_features, out_features)
        self.w_noise = w_noise
        self.inp_bound = inp_bound

    def forward(self, x):
        x = x.clamp(-self.inp_bound, self.inp_bound)
        weight = self.weight
        if self.training:
            weight = weight + self.w_noise * torch.randn_like(weight)
        return nn.functional.linear(x, weight, self.bias)


def build_model():
    return nn.Sequential(
        AnalogLinear(6, 12),
        nn.Tanh(),
        AnalogLinear(12, 8),
        nn.Tanh(),
        AnalogLinear(8, 2),
    )


def make_table(n=48):
    x = torch.rand(n, 6)
    y = torch.stack([x[:, 0] + x[:, 1] * x[:, 2], x[:, 3] - 0.5 * x[:, 5]], dim=1)
    return x, y


def train(tick, mended=False):
    torch.manual_seed(7)
    x, y = make_table()
    model = build_model()
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    tick.model(model)
    tick.optimizer(opt)

    history = []
    model.train()
    for _epoch in range(240):
        if mended:
            opt.zero_grad()
        pred = model(x)
        loss = mse_loss(pred, y)
        loss.backward()
        opt.step()
        history.append(loss.item())
        tick.step(loss, x, y)

    model.eval()
    with torch.no_grad():
        err = (model(x) - y).abs().mean().item()
    return history, err


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
            f"first {h[0]:.4f} last {h[-1]:.4f}",
            f"max {max(h):.3f}",
            f"mae {metric:.4f}",
        )

"""Healthy: an optimizer of one's own in the manner of Lion: updates are the sign of an interpolated momentum,
all of one size whatever the gradient, with decoupled weight decay; the learning rate is a tenth of Adam's.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SignMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr=3e-4, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                update = (m * b1 + p.grad * (1 - b1)).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class PointNet(nn.Module):
    """the transform starts at the identity: its last layer is all zeros"""

    def __init__(self, classes=4):
        super().__init__()
        self.tnet = nn.Sequential(nn.Linear(3, 24), nn.ReLU())
        self.tnet_out = nn.Linear(24, 9)
        nn.init.zeros_(self.tnet_out.weight)
        nn.init.zeros_(self.tnet_out.bias)
        self.mlp = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, pts):
        t = self.tnet_out(self.tnet(pts).max(1).values).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.mlp(pts @ t).max(1).values)


def clouds(n, P=48):
    y = torch.randint(0, 4, (n,))
    p = torch.randn(n, P, 3)
    ball = F.normalize(p, dim=2)
    disc = ball * torch.tensor([1.0, 1.0, 0.05])
    rod = p * torch.tensor([0.1, 0.1, 0.8])
    cube = p.clamp(-0.7, 0.7) * 1.2
    pts = torch.stack([ball, disc, rod, cube])[y, torch.arange(n)]
    return pts + 0.04 * torch.randn(n, P, 3), y


def train(tick, mended=False):
    torch.manual_seed(18)
    model = PointNet()
    optimizer = SignMomentum(model.parameters(), lr=8e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(200):
        pts, y = clouds(32)
        loss = F.cross_entropy(model(pts), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, pts, y)
    with torch.no_grad():
        pts, y = clouds(500)
        return history, (model(pts).argmax(1) == y).float().mean().item()


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
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")

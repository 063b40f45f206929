"""BVLC/caffe#1396: "Any input produce the same output"; in the thread the coordinates of body joints are
regressed with an AlexNet-like net and one writer finds which solver setting it was in his case.

Rebuilt: stick figures on small images, convolutions and two inner-product layers, Euclidean loss, SGD with momentum.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

SOLVER = {"base_lr": 0.02, "momentum": 0.9, "weight_decay": 0.5}


class JointNet(nn.Module):
    def __init__(self, num_joints=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 5, padding=2)
        self.conv2 = nn.Conv2d(12, 16, 3, padding=1)
        self.fc6 = nn.Linear(16 * 16, 64)
        self.fc7 = nn.Linear(64, 2 * num_joints)

    def forward(self, data):
        h = F.max_pool2d(F.relu(self.conv1(data)), 2)
        h = F.max_pool2d(F.relu(self.conv2(h)), 2)
        h = F.relu(self.fc6(h.flatten(1)))
        return self.fc7(h)


def stick_figures(n, size=16):
    head = torch.rand(n, 2) * torch.tensor([6.0, 12.0]) + torch.tensor([1.0, 2.0])
    hip = head + torch.stack([torch.full((n,), 4.0), 2 * torch.rand(n) - 1], 1)
    foot = hip + torch.stack([torch.full((n,), 3.5), 4 * torch.rand(n) - 2], 1)
    joints = torch.stack([head, hip, foot], dim=1)
    grid = torch.stack(torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij"), -1)
    d = ((grid[None, None] - joints[:, :, None, None]) ** 2).sum(-1)
    img = (torch.exp(-d / 1.5) * torch.tensor([1.0, 0.7, 0.4])[None, :, None, None]).sum(1, keepdim=True)
    return img + 0.05 * torch.randn_like(img), (joints.flatten(1) / size - 0.5) * 2


def make_solver(net, mended):
    weight_decay = 0.0005 if mended else SOLVER["weight_decay"]
    weights = [p for n, p in net.named_parameters() if n.endswith("weight")]
    biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
    return torch.optim.SGD(
        [
            {"params": weights, "weight_decay": weight_decay},
            {"params": biases, "lr": 2 * SOLVER["base_lr"], "weight_decay": 0},
        ],
        lr=SOLVER["base_lr"],
        momentum=SOLVER["momentum"],
    )


def train(tick, mended=False):
    torch.manual_seed(71)
    net = JointNet()
    solver = make_solver(net, mended)
    tick.model(net)
    tick.optimizer(solver)
    history = []
    for _it in range(250):
        data, label = stick_figures(32)
        solver.zero_grad()
        loss = 0.5 * ((net(data) - label) ** 2).sum(1).mean()
        loss.backward()
        solver.step()
        history.append(loss.item())
        tick.step(loss, data, label)
    with torch.no_grad():
        data, label = stick_figures(200)
        out = net(data)
        spread = out.std(0).mean().item() / label.std(0).mean().item()
    return history, spread


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
            f"spread of outputs / labels {metric:.3f}",
        )

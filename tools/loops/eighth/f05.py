"""jindongwang/Pytorch-CapsuleNet#13: a capsule network on digits; all goes well for some while, then the
loss is NaN and stays so."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def squash(x, dim, safe):
    squared_norm = (x**2).sum(dim, keepdim=True)
    norm = torch.sqrt(squared_norm + 1e-8) if safe else torch.sqrt(squared_norm)
    return squared_norm * x / ((1.0 + squared_norm) * (norm + 1e-8))


class PrimaryCaps(nn.Module):
    def __init__(self, in_channels, num_capsules, out_channels, safe):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, num_capsules * out_channels, 3, stride=2, bias=False)
        self.out_channels, self.safe = out_channels, safe

    def forward(self, x):
        u = self.conv(x)
        b, c, h, w = u.shape
        u = u.view(b, c // self.out_channels, self.out_channels, h, w).permute(0, 1, 3, 4, 2)
        return squash(u.reshape(b, -1, self.out_channels), -1, self.safe)


class DigitCaps(nn.Module):
    def __init__(self, num_routes, in_channels, num_capsules, out_channels, safe):
        super().__init__()
        self.W = nn.Parameter(0.3 * torch.randn(num_capsules, num_routes, in_channels, out_channels))
        self.safe = safe

    def forward(self, x):
        u_hat = torch.einsum("bri,crio->bcro", x, self.W)
        b_ij = torch.zeros(u_hat.shape[:3])
        for it in range(2):
            c_ij = F.softmax(b_ij, dim=1)
            v = squash((c_ij[..., None] * u_hat).sum(2), -1, self.safe)
            if it == 0:
                b_ij = b_ij + (u_hat * v[:, :, None]).sum(-1).detach()
        return v


class CapsNet(nn.Module):
    def __init__(self, safe):
        super().__init__()
        self.conv_layer = nn.Conv2d(1, 16, 5, bias=False)
        self.primary_capsules = PrimaryCaps(16, 4, 4, safe)
        self.digit_capsules = DigitCaps(4 * 9, 4, 4, 6, safe)

    def forward(self, data):
        return self.digit_capsules(self.primary_capsules(F.relu(self.conv_layer(data))))

    def margin_loss(self, v, labels):
        v_c = torch.sqrt((v**2).sum(-1) + 1e-8)
        left = F.relu(0.9 - v_c) ** 2
        right = F.relu(v_c - 0.1) ** 2
        return (labels * left + 0.5 * (1 - labels) * right).sum(1).mean()


def augment(x):
    x = x.clone()
    if torch.rand(()) < 0.02:
        k = torch.randint(0, len(x), ()).item()
        r, c = torch.randint(0, 4, (2,)).tolist()
        x[k, :, r : r + 9, c : c + 9] = 0
    return x


def train(tick, mended=False):
    torch.manual_seed(8)
    prototypes = (F.interpolate(torch.randn(4, 1, 4, 4), size=12, mode="bilinear") > 0).float()
    y = torch.randint(0, 4, (400,))
    x = (prototypes[y] + 0.3 * torch.rand(400, 1, 12, 12)).clamp(0.01, 1)
    capsule_net = CapsNet(safe=mended)
    optimizer = torch.optim.Adam(capsule_net.parameters(), lr=2e-3)
    tick.model(capsule_net)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(8):
        for idx in torch.randperm(len(x)).split(25):
            output = capsule_net(augment(x[idx]))
            loss = capsule_net.margin_loss(output, F.one_hot(y[idx], 4).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        train.final = ((capsule_net(x) ** 2).sum(-1).argmax(1) == y).float().mean().item()
    return losses

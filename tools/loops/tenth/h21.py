"""After TorchSSL/TorchSSL (FixMatch): twelve labelled samples, pseudo-labels above a
threshold; the unlabelled part is zero at first and comes in later."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class WideNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm1d(16)
        self.conv2 = nn.Conv1d(16, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 12, num_classes)

    def forward(self, x):
        h = F.leaky_relu(self.bn1(self.conv1(x)), 0.1)
        return self.fc(F.leaky_relu(self.conv2(h), 0.1).flatten(1))


def weak_aug(x):
    return x + 0.1 * torch.randn_like(x)


def strong_aug(x):
    x = x * (torch.rand_like(x) > 0.2)
    return x * (0.7 + 0.6 * torch.rand(len(x), 1, 1)) + 0.4 * torch.randn_like(x)


def consistency_loss(logits_s, logits_w, T=1.0, p_cutoff=0.95):
    pseudo = torch.softmax(logits_w.detach() / T, dim=-1)
    max_probs, max_idx = pseudo.max(-1)
    mask = max_probs.ge(p_cutoff).float()
    return (F.cross_entropy(logits_s, max_idx, reduction="none") * mask).mean(), mask.mean()


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = torch.randn(4, 1, 24)
    lb_y = torch.arange(4).repeat(3)
    lb_x = protos[lb_y] + 0.8 * torch.randn(12, 1, 24)
    ulb_y = torch.randint(0, 4, (400,))
    ulb_x = protos[ulb_y] + 0.8 * torch.randn(400, 1, 24)
    model = WideNet()
    ema_model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    losses, masks = [], []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _it in range(220):
        xu = ulb_x[torch.randint(0, 400, (32,))]
        inputs = torch.cat([weak_aug(lb_x), weak_aug(xu), strong_aug(xu)])
        logits = model(inputs)
        sup_loss = F.cross_entropy(logits[:12], lb_y)
        unsup_loss, mask = consistency_loss(logits[44:], logits[12:44])
        total_loss = sup_loss + unsup_loss
        optimizer.zero_grad()
        total_loss.backward()
        optimizer.step()
        for e, p in zip(ema_model.parameters(), model.parameters()):
            e.data.lerp_(p.data, 0.05)
        tick.step(total_loss)
        losses.append(total_loss.item())
        masks.append(mask.item())
    return losses

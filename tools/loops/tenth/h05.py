"""After facebookresearch/moco: momentum encoder, queue of negatives; the loss rises first
as the keys in the queue become alike to the queries, then falls."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 5, stride=2, padding=2)
        self.bn1 = nn.BatchNorm1d(16)
        self.conv2 = nn.Conv1d(16, 24, 5, stride=2, padding=2)
        self.fc = nn.Linear(24 * 8, dim)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(F.relu(self.conv2(x)).flatten(1))


class MoCo(nn.Module):
    def __init__(self, dim=16, K=256, m=0.95, T=0.1):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = Encoder(dim), Encoder(dim)
        self.encoder_k.load_state_dict(self.encoder_q.state_dict())
        for p in self.encoder_k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        self.ptr = 0

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
                pk.data = pk.data * self.m + pq.data * (1.0 - self.m)
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = (q * k).sum(1, keepdim=True)
        l_neg = q @ self.queue.clone()
        logits = torch.cat([l_pos, l_neg], 1) / self.T
        self.queue[:, self.ptr : self.ptr + len(k)] = k.T
        self.ptr = (self.ptr + len(k)) % self.K
        return logits, torch.zeros(len(q), dtype=torch.long)


def augment(x):
    shift = torch.randint(-2, 3, ()).item()
    return torch.roll(x, shift, -1) * (0.8 + 0.4 * torch.rand(len(x), 1, 1)) + 0.2 * torch.randn_like(x)


def train(tick, mended=False):
    torch.manual_seed(0)
    bank = F.avg_pool1d(torch.randn(400, 1, 96), 5, stride=3, padding=2)[..., :32] * 2
    model = MoCo()
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9, weight_decay=1e-4
    )
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    for _step in range(250):
        x = bank[torch.randint(0, 400, (32,))]
        logits, labels = model(augment(x), augment(x))
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

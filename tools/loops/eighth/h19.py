"""facebookresearch/moco: a slowly following key encoder and a queue of negatives; the loss climbs in the first
steps, while the queue is still random, before it falls."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def base_encoder(dim=16):
    return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, dim))


class MoCo(nn.Module):
    def __init__(self, dim=16, K=256, m=0.97, T=0.2):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q = base_encoder(dim)
        self.encoder_k = copy.deepcopy(self.encoder_q)
        for p in self.encoder_k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data = k.data * self.m + q.data * (1.0 - self.m)

    @torch.no_grad()
    def dequeue_and_enqueue(self, keys):
        ptr = int(self.queue_ptr)
        self.queue[:, ptr : ptr + len(keys)] = keys.T
        self.queue_ptr[0] = (ptr + len(keys)) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self.momentum_update()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = (q * k).sum(1, keepdim=True)
        l_neg = q @ self.queue.clone().detach()
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        self.dequeue_and_enqueue(k)
        return logits, torch.zeros(len(q), dtype=torch.long)


def train(tick, mended=False):
    torch.manual_seed(0)
    x = torch.randn(512, 24)
    model = MoCo()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(18):
        for idx in torch.randperm(512).split(32):
            im_q, im_k = x[idx] + 0.3 * torch.randn(32, 24), x[idx] + 0.3 * torch.randn(32, 24)
            output, target = model(im_q, im_k)
            loss = criterion(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        a = F.normalize(model.encoder_q(x + 0.3 * torch.randn_like(x)), dim=1)
        b = F.normalize(model.encoder_q(x + 0.3 * torch.randn_like(x)), dim=1)
        train.final = ((a @ b.T).argmax(1) == torch.arange(512)).float().mean().item()
    return losses

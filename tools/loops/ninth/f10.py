"""After davidmrau/mixture-of-experts#27: "Zero Grad of w_gate" (MoE in a Transformer
layer, k=1, without the load-balance loss).
"""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class MoE(nn.Module):
    def __init__(self, dim, num_experts=4, hidden=12, k=1, pre_softmax=False):
        super().__init__()
        self.experts = nn.ModuleList(MLP(dim, hidden) for _ in range(num_experts))
        self.w_gate = nn.Parameter(0.02 * torch.randn(dim, num_experts))
        self.w_noise = nn.Parameter(torch.zeros(dim, num_experts))
        self.k, self.pre_softmax = k, pre_softmax

    def noisy_top_k_gating(self, x):
        clean_logits = x @ self.w_gate
        logits = clean_logits
        if self.training:
            logits = clean_logits + torch.randn_like(clean_logits) * (F.softplus(x @ self.w_noise - 2) + 1e-2)
        if self.pre_softmax:
            probs = logits.softmax(1)
            top_k_gates, top_k_indices = probs.topk(self.k, dim=1)
        else:
            top_logits, top_k_indices = logits.topk(self.k, dim=1)
            top_k_gates = top_logits.softmax(1)
        return torch.zeros_like(logits).scatter(1, top_k_indices, top_k_gates)

    def forward(self, x):
        gates = self.noisy_top_k_gating(x)
        out = torch.stack([e(x) for e in self.experts], 1)
        return (gates.unsqueeze(2) * out).sum(1)


class Block(nn.Module):
    def __init__(self, dim=16, pre_softmax=False):
        super().__init__()
        self.proj = nn.Linear(12, dim)
        self.moe = MoE(dim, pre_softmax=pre_softmax)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        h = self.proj(x)
        return self.head(self.norm(h + self.moe(h)))


def make_data(n, seed):
    g = torch.Generator().manual_seed(3)
    maps, centres = torch.randn(4, 8, 4, generator=g), torch.eye(4) * 2.5
    g.manual_seed(seed)
    task = torch.randint(0, 4, (n,), generator=g)
    x = torch.randn(n, 8, generator=g)
    y = torch.einsum("nd,ndc->nc", x, maps[task]).argmax(1)
    return torch.cat([x, centres[task] + 0.2 * torch.randn(n, 4, generator=g)], 1), y


def score(model, mended):
    x, y = make_data(1000, 99)
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def train(tick, mended=False):
    torch.manual_seed(0)
    x, y = make_data(3000, 1)
    model = Block(pre_softmax=mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(280):
        idx = torch.randint(0, 3000, (128,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses

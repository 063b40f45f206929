"""davidmrau/mixture-of-experts#27: "the gradient of w_gate is always zero and that parameter does not update" (k=1)."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
OTHERS: list = []
LOG: list = []


class Expert(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.fc = nn.Linear(d_in, d_out)

    def forward(self, x):
        return self.fc(x)


class MoE(nn.Module):
    def __init__(self, d_in, d_out, num_experts=4, k=1, renorm=True):
        super().__init__()
        self.k, self.renorm = k, renorm
        self.experts = nn.ModuleList([Expert(d_in, d_out) for _ in range(num_experts)])
        self.w_gate = nn.Linear(d_in, num_experts, bias=False)

    def gating(self, x):
        logits = self.w_gate(x)
        top_logits, top_idx = logits.topk(self.k, dim=1)
        if self.renorm:
            top_gates = F.softmax(top_logits, dim=1)
        else:
            top_gates = F.softmax(logits, dim=1).gather(1, top_idx)
        return torch.zeros_like(logits).scatter(1, top_idx, top_gates)

    def forward(self, x):
        gates = self.gating(x)
        outs = torch.stack([e(x) for e in self.experts], 1)
        return (gates.unsqueeze(-1) * outs).sum(1), gates


class Net(nn.Module):
    def __init__(self, renorm):
        super().__init__()
        self.moe = MoE(8, 16, renorm=renorm)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        h, gates = self.moe(x)
        return self.head(h), gates


def build(bad: bool):
    torch.manual_seed(5)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(8)
    domains = torch.eye(4) * 2.0
    maps = torch.randn(4, 4, 4, generator=gen)
    model = Net(renorm=bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(i):
        dom = torch.randint(0, 4, (64,), generator=gen)
        feat = torch.randn(64, 4, generator=gen)
        x = torch.cat([domains[dom] + 0.1 * torch.randn(64, 4, generator=gen), feat], 1)
        y = torch.einsum("bij,bj->bi", maps[dom], feat)
        pred, _ = model(x)
        loss = F.mse_loss(pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step

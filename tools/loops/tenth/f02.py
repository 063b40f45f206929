"""After davidmrau/mixture-of-experts#27.

The sparsely gated MoE layer put in a feed-forward position with k=1 and without the
auxiliary load loss.  The user found that w_gate never moves during training.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, input_size, output_size, hidden_size):
        super().__init__()
        self.fc1 = nn.Linear(input_size, hidden_size)
        self.fc2 = nn.Linear(hidden_size, output_size)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


class MoE(nn.Module):
    def __init__(self, input_size, output_size, num_experts, hidden_size, k=1, mended=False):
        super().__init__()
        self.num_experts = num_experts
        self.k = k
        self.mended = mended
        self.experts = nn.ModuleList(Expert(input_size, output_size, hidden_size) for _ in range(num_experts))
        self.w_gate = nn.Parameter(0.1 * torch.randn(input_size, num_experts))

    def top_k_gating(self, x):
        logits = x @ self.w_gate
        if self.mended:
            probs = F.softmax(logits, dim=1)
            top_k_gates, top_k_indices = probs.topk(self.k, dim=1)
        else:
            top_k_logits, top_k_indices = logits.topk(self.k, dim=1)
            top_k_gates = F.softmax(top_k_logits, dim=1)
        zeros = torch.zeros_like(logits)
        return zeros.scatter(1, top_k_indices, top_k_gates)

    def forward(self, x):
        gates = self.top_k_gating(x)
        y = 0
        for i, expert in enumerate(self.experts):
            rows = gates[:, i].nonzero().squeeze(1)
            if rows.numel():
                out = expert(x[rows]) * gates[rows, i].unsqueeze(1)
                y = y + torch.zeros(x.size(0), out.size(1)).index_add(0, rows, out)
        return y


class MoEClassifier(nn.Module):
    def __init__(self, input_size, num_classes, mended):
        super().__init__()
        self.norm = nn.LayerNorm(input_size)
        self.moe = MoE(input_size, num_classes, num_experts=4, hidden_size=4, mended=mended)

    def forward(self, x):
        return self.moe(self.norm(x))


def make_data(n=1024, dim=12, num_domains=4, num_classes=2):
    x = torch.randn(n, dim)
    x[:, :2] *= 2
    domain = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    maps = torch.randn(num_domains, dim, num_classes)
    maps[:, :2] = 0
    labels = torch.einsum("nd,ndc->nc", x, maps[domain]).argmax(1)
    return x, labels


def train(tick, mended=False):
    torch.manual_seed(0)
    x, y = make_data()
    net = MoEClassifier(12, 2, mended)
    loss_fn = nn.CrossEntropyLoss()
    optim = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    tick.model(net)
    tick.optimizer(optim)
    net.train()
    for _step in range(300):
        optim.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        optim.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

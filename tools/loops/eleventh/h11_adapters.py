"""After adapter-hub/adapters.

A pretrained encoder stays frozen; only small bottleneck adapters, near the
identity at the start, and the prediction head are trained.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Adapter(nn.Module):
    def __init__(self, dim, reduction_factor=4):
        super().__init__()
        down = dim // reduction_factor
        self.adapter_down = nn.Linear(dim, down)
        self.adapter_up = nn.Linear(down, dim)
        for m in (self.adapter_down, self.adapter_up):
            nn.init.normal_(m.weight, std=0.02)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        return x + self.adapter_up(F.relu(self.adapter_down(x)))


class BertLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.intermediate, self.output = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.adapter = nn.Identity()

    def forward(self, x):
        x = self.ln1(x + self.attention(x, x, x, need_weights=False)[0])
        h = self.output(F.gelu(self.intermediate(x)))
        return self.ln2(x + self.adapter(h))


class BertAdapterModel(nn.Module):
    def __init__(self, vocab=40, dim=32, n_layers=2):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([BertLayer(dim) for _ in range(n_layers)])
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 2))

    def add_adapter(self):
        for layer in self.layers:
            layer.adapter = Adapter(self.embeddings.embedding_dim)

    def train_adapter(self):
        for name, p in self.named_parameters():
            p.requires_grad = "adapter" in name or name.startswith("head")

    def forward(self, ids):
        x = self.embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


def train(tick, mended=False):
    torch.manual_seed(0)
    ids = torch.randint(3, 40, (320, 8))
    labels = (ids[:, 1:] < 12).any(1).long()
    ids[:, 0] = 1
    model = BertAdapterModel()
    model.add_adapter()
    model.train_adapter()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(16):
        for rows in torch.randperm(len(ids)).split(32):
            loss = F.cross_entropy(model(ids[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses

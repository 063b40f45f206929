"""After microsoft/LoRA (loralib): the base network is frozen, lora_B starts at zero, only
the low-rank factors and the classifier are trained."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Linear):
    def __init__(self, in_features, out_features, r=4, lora_alpha=16):
        super().__init__(in_features, out_features)
        self.lora_A = nn.Parameter(torch.empty(r, in_features))
        self.lora_B = nn.Parameter(torch.zeros(out_features, r))
        self.scaling = lora_alpha / r
        self.weight.requires_grad = False
        self.bias.requires_grad = False
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        return super().forward(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class AdaptedEncoder(nn.Module):
    def __init__(self, vocab=80, dim=48, n_classes=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.query = LoRALinear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = LoRALinear(dim, dim)
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, n_classes)

    def forward(self, ids):
        x = self.embed(ids)
        att = F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))
        h = self.norm(x + torch.relu(self.dense(att)))
        return self.classifier(h.mean(1))


def mark_only_lora_as_trainable(model):
    for n, p in model.named_parameters():
        p.requires_grad = "lora_" in n or n.startswith("classifier")


def train(tick, mended=False):
    torch.manual_seed(5)
    model = AdaptedEncoder()
    mark_only_lora_as_trainable(model)
    topic = torch.randint(0, 6, (80,))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    for _step in range(200):
        y = torch.randint(0, 6, (32,))
        ids = torch.randint(0, 80, (32, 10))
        for i in range(32):
            own = (topic == y[i]).nonzero().flatten()
            ids[i, :5] = own[torch.randint(0, len(own), (5,))]
        loss = F.cross_entropy(model(ids), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

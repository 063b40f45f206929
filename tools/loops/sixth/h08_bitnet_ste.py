"""kyegomez/BitNet#51: "what is the purpose of detach here?" in BitLinear."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


def activation_quant(x):
    scale = 127.0 / x.abs().max(-1, keepdim=True).values.clamp(min=1e-5)
    return (x * scale).round().clamp(-128, 127) / scale


def weight_quant(w):
    scale = w.abs().mean()
    return (w / (scale + 1e-6)).round().clamp(-1, 1) * scale


class BitLinear(nn.Linear):
    def forward(self, x):
        x_norm = F.layer_norm(x, x.shape[-1:])
        x_quant = x_norm + (activation_quant(x_norm) - x_norm).detach()
        w_quant = self.weight + (weight_quant(self.weight) - self.weight).detach()
        return F.linear(x_quant, w_quant, self.bias)


class BitNetBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = BitLinear(d, 2 * d), BitLinear(2 * d, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class BitNet(nn.Module):
    def __init__(self, vocab=16, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.mix = BitLinear(2 * d, d)
        self.blocks = nn.ModuleList([BitNetBlock(d), BitNetBlock(d)])
        self.to_logits = nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.mix(self.emb(ids).flatten(1))
        for b in self.blocks:
            x = b(x)
        return self.to_logits(x)


def build(bad: bool):
    torch.manual_seed(38)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(38)
    model = BitNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(i):
        ids = torch.randint(0, 16, (128, 2), generator=gen)
        loss = F.cross_entropy(model(ids), (ids[:, 0] + 2 * ids[:, 1]) % 16)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step

"""After danielmamay/grokking: modular addition, few data, full batches, AdamW with weight
decay 1.0 and a high rate; the weights shrink all the time and the task is learnt still."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DecoderBlock(nn.Module):
    def __init__(self, dim_model, n_heads):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim_model, n_heads)
        self.self_attn_norm = nn.LayerNorm(dim_model)
        self.ffn = nn.Sequential(nn.Linear(dim_model, dim_model * 2), nn.GELU(), nn.Linear(dim_model * 2, dim_model))
        self.ffn_norm = nn.LayerNorm(dim_model)

    def forward(self, x):
        a1 = self.self_attn_norm(x + self.self_attn(x, x, x, need_weights=False)[0])
        return self.ffn_norm(a1 + self.ffn(a1))


class Transformer(nn.Module):
    def __init__(self, num_tokens, dim_model=48, num_heads=2, seq_len=4):
        super().__init__()
        self.token_embeddings = nn.Embedding(num_tokens, dim_model)
        self.position_embeddings = nn.Embedding(seq_len, dim_model)
        self.block = DecoderBlock(dim_model, num_heads)
        self.norm = nn.LayerNorm(dim_model)
        self.head = nn.Linear(dim_model, num_tokens)

    def forward(self, inputs):
        pos = torch.arange(inputs.size(1))
        h = (self.token_embeddings(inputs) + self.position_embeddings(pos)).transpose(0, 1)
        return self.head(self.norm(self.block(h)))[-1]


def train(tick, mended=False):
    torch.manual_seed(0)
    prime = 11
    a, b = torch.cartesian_prod(torch.arange(prime), torch.arange(prime)).T
    eq, op = torch.full_like(a, prime), torch.full_like(a, prime + 1)
    inputs, labels = torch.stack([a, op, b, eq], 1), (a + b) % prime
    keep = torch.randperm(len(a))[:60]
    model = Transformer(prime + 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98), weight_decay=1.0)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=9)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(200):
        loss = F.cross_entropy(model(inputs[keep]), labels[keep])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

"""After lucidrains/muse-maskgit-pytorch#11.

Story: masked image-token transformer; the cross entropy falls to almost nothing
very fast, but filling in masked tokens gives rubbish.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class Attention(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


class FeedForward(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.LayerNorm(dim), nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))


class MaskGitTransformer(nn.Module):
    def __init__(self, num_tokens=12, dim=32, seq_len=16, depth=2):
        super().__init__()
        self.mask_id = num_tokens
        self.token_emb = nn.Embedding(num_tokens + 1, dim)
        self.pos_emb = nn.Embedding(seq_len, dim)
        self.layers = nn.ModuleList([nn.ModuleList([Attention(dim), FeedForward(dim)]) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, num_tokens, bias=False)

    def forward(self, x):
        x = self.token_emb(x) + self.pos_emb.weight
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        return self.to_logits(self.norm(x))


class MaskGit(nn.Module):
    def __init__(self, transformer, feed_masked):
        super().__init__()
        self.transformer = transformer
        self.feed_masked = feed_masked

    def get_mask(self, ids):
        batch, n = ids.shape
        ratio = torch.cos(torch.rand(batch) * math.pi / 2)
        num_masked = (n * ratio).round().clamp(min=1)
        return torch.rand(batch, n).argsort(-1) < num_masked[:, None]

    def forward(self, ids):
        mask = self.get_mask(ids)
        labels = torch.where(mask, ids, torch.full_like(ids, -1))
        x = torch.where(mask, torch.full_like(ids, self.transformer.mask_id), ids)
        logits = self.transformer(x if self.feed_masked else ids)
        return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-1)


def sample_ids(batch):
    start = torch.randint(0, 12, (batch, 1))
    stride = torch.randint(1, 3, (batch, 1))
    return (start + stride * torch.arange(16)) % 12


@torch.no_grad()
def fill_in_accuracy(transformer):
    ids = sample_ids(64)
    mask = torch.rand(64, 16) < 0.4
    pred = transformer(torch.where(mask, torch.full_like(ids, transformer.mask_id), ids)).argmax(-1)
    return (pred[mask] == ids[mask]).float().mean().item()


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    maskgit = MaskGit(MaskGitTransformer(), feed_masked=mended)
    optimizer = torch.optim.Adam(maskgit.parameters(), lr=3e-3)
    tick.model(maskgit)
    tick.optimizer(optimizer)
    losses = []
    for step in range(250):
        loss = maskgit(sample_ids(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    LAST = fill_in_accuracy(maskgit.transformer)
    return losses

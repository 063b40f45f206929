"""After KempnerInstitute/KempnerForge#154: "VLM captioning loss collapses to 0".

A joint-decoder vision-language model: image patches are put before the caption
tokens, a causal decoder returns logits over the text positions.
"""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, TEXT, PATCHES = 24, 8, 4


class VisionEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patch_embed = nn.Linear(12, dim)
        self.adapter = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, pixels):
        return self.adapter(self.patch_embed(pixels))


class DecoderBlock(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.attn_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask):
        h = self.attn_norm(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.mlp_norm(x))


class JointDecoderVLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.vision = VisionEncoder(dim)
        self.tok_embed = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(PATCHES + TEXT, dim))
        self.layers = nn.ModuleList(DecoderBlock(dim) for _ in range(2))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, pixels, input_ids):
        x = torch.cat([self.vision(pixels), self.tok_embed(input_ids)], 1) + self.pos
        mask = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        for layer in self.layers:
            x = layer(x, mask)
        return self.lm_head(self.norm(x))[:, PATCHES:]


def _tokenize_and_mask(captions, mended):
    labels = captions.clone()
    if mended:
        labels = torch.cat([captions[:, 1:], torch.full_like(captions[:, :1], -100)], 1)
    return captions, labels


G = torch.Generator().manual_seed(1)
LOOK = torch.randn(VOCAB, 12, generator=G)
NEXT = torch.randperm(VOCAB, generator=G)


def batch(n):
    topic = torch.randint(0, VOCAB, (n,))
    ids = [torch.zeros(n, dtype=torch.long), topic]
    for _ in range(TEXT - 2):
        ids.append(NEXT[ids[-1]])
    return LOOK[topic][:, None] + 0.3 * torch.randn(n, PATCHES, 12), torch.stack(ids, 1)


def score(model, mended):
    torch.manual_seed(4)
    px, ids = batch(200)
    with torch.no_grad():
        return (model(px, ids)[:, :-1].argmax(-1) == ids[:, 1:]).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    model = JointDecoderVLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(100):
        pixels, captions = batch(32)
        input_ids, labels = _tokenize_and_mask(captions, mended)
        logits = model(pixels, input_ids)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses

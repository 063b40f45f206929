"""After facebookresearch/deit: mixup and label smoothing in a small vision transformer; the
training loss stays far from zero though the clean accuracy is high."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, num_heads=2):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, drop_path=0.05):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.drop_path = drop_path

    def path(self, y):
        if not self.training:
            return y
        keep = (torch.rand(len(y), 1, 1) > self.drop_path).float()
        return y * keep / (1 - self.drop_path)

    def forward(self, x):
        x = x + self.path(self.attn(self.norm1(x)))
        return x + self.path(self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    def __init__(self, img=12, patch=4, dim=32, depth=2, num_classes=6):
        super().__init__()
        self.patch_embed = nn.Conv2d(1, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (img // patch) ** 2 + 1, dim))
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def mixup(x, y, num_classes, alpha=0.8, smoothing=0.1):
    lam = torch.distributions.Beta(alpha, alpha).sample()
    off = smoothing / num_classes
    t = F.one_hot(y, num_classes) * (1 - smoothing) + off
    return lam * x + (1 - lam) * x.flip(0), lam * t + (1 - lam) * t.flip(0)


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = torch.randn(6, 1, 12, 12)
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(145):
        y = torch.randint(0, 6, (32,))
        x = protos[y] + 0.7 * torch.randn(32, 1, 12, 12)
        samples, targets = mixup(x, y, 6)
        loss = torch.sum(-targets * F.log_softmax(model(samples), dim=-1), dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

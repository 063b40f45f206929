"""After Vision-CAIR/MiniGPT-4#263: aligning a frozen vision encoder with a language model.

The learning-rate curve of the run looks like a saw and the loss comes down
much more slowly than in the paper.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class LinearWarmupCosineLRScheduler:
    def __init__(
        self, optimizer, max_epoch, iters_per_epoch, min_lr, init_lr, warmup_steps=0, warmup_start_lr=-1, mended=False
    ):
        self.optimizer = optimizer
        self.max_epoch, self.iters_per_epoch = max_epoch, iters_per_epoch
        self.min_lr, self.init_lr = min_lr, init_lr
        self.warmup_steps, self.warmup_start_lr = warmup_steps, warmup_start_lr
        self.mended = mended

    def step(self, cur_epoch, cur_step):
        total_cur_step = cur_epoch * self.iters_per_epoch + cur_step
        if total_cur_step < self.warmup_steps:
            step = total_cur_step if self.mended else cur_step
            lr = min(
                self.init_lr,
                self.warmup_start_lr + (self.init_lr - self.warmup_start_lr) * step / max(self.warmup_steps, 1),
            )
        else:
            total = self.max_epoch * self.iters_per_epoch
            lr = (self.init_lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * total_cur_step / total)) + self.min_lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr


class VisualEncoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.patch_embed = nn.Conv2d(1, 16, 4, 4)
        self.block = nn.Sequential(nn.Flatten(), nn.Linear(16 * 4, dim), nn.GELU())

    def forward(self, image):
        return self.block(self.patch_embed(image))


class MiniGPT4(nn.Module):
    def __init__(self, visual_encoder, vocab=10, hidden=48):
        super().__init__()
        self.visual_encoder = visual_encoder
        for p in self.visual_encoder.parameters():
            p.requires_grad = False
        self.ln_vision = nn.LayerNorm(32)
        self.llama_proj = nn.Linear(32, hidden)
        self.adapter = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU())
        self.lm_head = nn.Linear(hidden, vocab)

    def forward(self, image, caption):
        with torch.no_grad():
            feats = self.visual_encoder(image)
        h = self.adapter(self.llama_proj(self.ln_vision(feats)))
        return F.cross_entropy(self.lm_head(h), caption)


def images(n, protos):
    label = torch.randint(0, 10, (n,))
    return protos[label] + 0.3 * torch.randn(n, 1, 8, 8), label


def pretrain_vision(protos):
    enc = VisualEncoder()
    head = nn.Linear(32, 10)
    opt = torch.optim.Adam(list(enc.parameters()) + list(head.parameters()), lr=3e-3)
    for _ in range(100):
        x, y = images(64, protos)
        opt.zero_grad()
        F.cross_entropy(head(enc(x)), y).backward()
        opt.step()
    enc.zero_grad(set_to_none=True)
    return enc


def train(tick, mended=False):
    torch.manual_seed(5)
    protos = torch.randn(10, 1, 8, 8)
    words = torch.randperm(10)
    model = MiniGPT4(pretrain_vision(protos))
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=2e-3, weight_decay=0.05, betas=(0.9, 0.999))
    max_epoch, iters = 20, 5
    sched = LinearWarmupCosineLRScheduler(
        optimizer, max_epoch, iters, min_lr=1e-5, init_lr=2e-3, warmup_steps=80, warmup_start_lr=1e-6, mended=mended
    )
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(max_epoch):
        for i in range(iters):
            sched.step(cur_epoch=epoch, cur_step=i)
            x, y = images(32, protos)
            loss = model(x, words[y])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses

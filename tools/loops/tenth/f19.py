"""After hpcaitech/Open-Sora#906.

Rectified-flow training of a small video transformer with gradient accumulation.  On a
small data set (few steps per epoch) the reporter's loss did not change at all.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def timestep_embedding(t, dim):
    freqs = torch.exp(-torch.arange(dim // 2) / (dim // 2) * 6.0)
    args = 100 * t[:, None] * freqs
    return torch.cat([args.cos(), args.sin()], dim=-1)


class STDiTBlock(nn.Module):
    def __init__(self, hidden_size, num_heads=2):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden_size, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(hidden_size, num_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(hidden_size, elementwise_affine=False)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, 2 * hidden_size), nn.GELU(), nn.Linear(2 * hidden_size, hidden_size)
        )
        self.modulation = nn.Linear(hidden_size, 2 * hidden_size)

    def forward(self, x, temb):
        shift, scale = self.modulation(F.silu(temb))[:, None].chunk(2, dim=-1)
        h = self.norm1(x) * (1 + scale) + shift
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class STDiT(nn.Module):
    def __init__(self, patch_dim=8, frames=6, hidden_size=32, depth=2):
        super().__init__()
        self.x_embedder = nn.Linear(patch_dim, hidden_size)
        self.pos = nn.Parameter(0.02 * torch.randn(frames, hidden_size))
        self.t_embedder = nn.Linear(32, hidden_size)
        self.blocks = nn.ModuleList(STDiTBlock(hidden_size) for _ in range(depth))
        self.final_layer = nn.Linear(hidden_size, patch_dim)

    def forward(self, x, t):
        h = self.x_embedder(x) + self.pos
        temb = self.t_embedder(timestep_embedding(t, 32))
        for block in self.blocks:
            h = block(h, temb)
        return self.final_layer(h)


def make_latents(n=48, frames=6, dim=8):
    start = torch.randn(n, 1, 2) @ torch.randn(2, dim)
    motion = torch.linspace(0, 1, frames)[None, :, None] * torch.randn(dim)
    return start + motion


def train(tick, mended=False):
    torch.manual_seed(1024)
    dataloader = DataLoader(TensorDataset(make_latents()), batch_size=16, shuffle=True)
    model = STDiT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    accumulation_steps, epochs = 4, 100
    num_steps_per_epoch = len(dataloader)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for epoch in range(epochs):
        for step, (x_1,) in enumerate(dataloader):
            t = torch.rand(x_1.size(0))
            noise = torch.randn_like(x_1)
            x_t = (1 - t)[:, None, None] * noise + t[:, None, None] * x_1
            velocity = model(x_t, t)
            loss = F.mse_loss(velocity, x_1 - noise)
            (loss / accumulation_steps).backward()
            global_step = epoch * num_steps_per_epoch + step
            counter = global_step if mended else step
            if (counter + 1) % accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
            tick.step(loss)
            losses.append(loss.item())
    return losses

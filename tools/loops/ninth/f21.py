"""After huggingface/lerobot#17: "Fix bugs with normalization" (the action was neither
normalised nor unnormalised).

Diffusion policy for pushing a T: observation encoder, noise-prediction net over
action chunks, replay buffer with a normalising transform.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

HORIZON, ACT, OBS, STEPS = 8, 2, 5, 50


class NormalizeTransform:
    def __init__(self, stats, in_keys):
        self.stats, self.in_keys = stats, in_keys

    def __call__(self, batch):
        out = dict(batch)
        for key in self.in_keys:
            if key in batch:
                lo, hi = self.stats[key]
                out[key] = (batch[key] - lo) / (hi - lo) * 2 - 1
        return out


class DiffusionPolicy(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.obs_encoder = nn.Sequential(nn.Linear(OBS, 32), nn.Mish(), nn.Linear(32, 32))
        self.step_encoder = nn.Sequential(nn.Linear(16, 32), nn.Mish())
        self.down = nn.Linear(HORIZON * ACT + 64, dim)
        self.mid = nn.Sequential(nn.LayerNorm(dim), nn.Mish(), nn.Linear(dim, dim), nn.Mish())
        self.final = nn.Linear(dim, HORIZON * ACT)
        beta = torch.linspace(1e-3, 0.12, STEPS)
        self.register_buffer("abar", torch.cumprod(1 - beta, 0))

    def unet(self, noisy, k, obs):
        f = k[:, None].float() * torch.exp(-math.log(200.0) * torch.arange(8) / 8)
        cond = torch.cat([self.obs_encoder(obs), self.step_encoder(torch.cat([f.sin(), f.cos()], 1))], 1)
        h = self.down(torch.cat([noisy.flatten(1), cond], 1))
        return self.final(h + self.mid(h)).view_as(noisy)

    def compute_loss(self, batch):
        trajectory = batch["action"]
        noise = torch.randn_like(trajectory)
        k = torch.randint(0, STEPS, (len(trajectory),))
        a = self.abar[k][:, None, None]
        noisy = a.sqrt() * trajectory + (1 - a).sqrt() * noise
        return F.mse_loss(self.unet(noisy, k, batch["observation"]), noise)


def pusht(n):
    start, goal = 512 * torch.rand(n, 2), 512 * torch.rand(n, 2)
    s = torch.linspace(0, 1, HORIZON)[None, :, None]
    action = start[:, None] * (1 - s) + goal[:, None] * s
    obs = torch.cat([start, goal, (goal - start).norm(dim=1, keepdim=True)], 1)
    return {"observation": obs, "action": action}


def train(tick, mended=False):
    torch.manual_seed(0)
    stats = {
        "observation": (torch.zeros(OBS), torch.full((OBS,), 512.0)),
        "action": (torch.zeros(ACT), torch.full((ACT,), 512.0)),
    }
    buffer = pusht(2000)
    transforms = [NormalizeTransform(stats, in_keys=["observation"])]
    transforms.append(NormalizeTransform(stats, in_keys=("action",) if mended else ("action")))
    policy = DiffusionPolicy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, betas=(0.95, 0.999), weight_decay=1e-6)
    tick.model(policy)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(280):
        idx = torch.randint(0, 2000, (64,))
        batch = {k: v[idx] for k, v in buffer.items()}
        for t in transforms:
            batch = t(batch)
        loss = policy.compute_loss(batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses

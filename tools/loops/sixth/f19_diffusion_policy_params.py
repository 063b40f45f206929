"""siddancha/streaming-flow-policy#15: Push-T notebook with a flow net and a diffusion-policy net trained
side by side."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class ConditionalUnet1D(nn.Module):
    def __init__(self, input_dim, global_cond_dim, hidden=48):
        super().__init__()
        self.diffusion_step_encoder = nn.Sequential(nn.Linear(1, 16), nn.Mish(), nn.Linear(16, 16))
        self.cond_encoder = nn.Linear(global_cond_dim + 16, hidden)
        self.down = nn.Conv1d(input_dim, hidden, 3, padding=1)
        self.mid = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.final_conv = nn.Conv1d(hidden, input_dim, 1)

    def forward(self, sample, timestep, global_cond):
        t = self.diffusion_step_encoder(timestep[:, None])
        c = self.cond_encoder(torch.cat([global_cond, t], 1))[..., None]
        h = F.mish(self.down(sample) + c)
        return self.final_conv(F.mish(self.mid(h) + c))


class Policies(nn.Module):
    def __init__(self):
        super().__init__()
        self.velocity_net = ConditionalUnet1D(2, 2)
        self.dp_noise_pred_net = ConditionalUnet1D(2, 2)


def build(bad: bool):
    torch.manual_seed(18)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(18)
    nets = Policies()
    sfp_optimizer = torch.optim.AdamW(nets.velocity_net.parameters(), lr=3e-3, weight_decay=1e-6)
    dp_params = nets.velocity_net.parameters() if bad else nets.dp_noise_pred_net.parameters()
    dp_optimizer = torch.optim.AdamW(dp_params, lr=3e-3, weight_decay=1e-6)
    OTHERS.append(sfp_optimizer)
    ramp = torch.linspace(0, 1, 8)

    def step(i):
        obs = torch.rand(32, 2, generator=gen) * 2 - 1
        naction = obs[..., None] * (1 - ramp) + 0.5 * torch.sin(3 * obs[..., None] * ramp)
        t = torch.rand(32, generator=gen)
        noise = torch.randn(32, 2, 8, generator=gen)
        velocity = nets.velocity_net(naction + 0.1 * noise, t, obs)
        sfp_loss = F.mse_loss(velocity[..., :-1], naction.diff(dim=-1) * 8)
        sfp_optimizer.zero_grad()
        sfp_loss.backward()
        sfp_optimizer.step()
        ab = torch.cos(t * 1.5)[:, None, None] ** 2
        noisy_actions = ab.sqrt() * naction + (1 - ab).sqrt() * noise
        dp_loss = F.mse_loss(nets.dp_noise_pred_net(noisy_actions, t, obs), noise)
        dp_optimizer.zero_grad()
        dp_loss.backward()
        dp_optimizer.step()
        LOG.append(dp_loss.item())

    return nets, dp_optimizer, step

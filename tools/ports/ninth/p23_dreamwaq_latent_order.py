"""ShengqianChen/DreamWaQ_Go2W#4

The policy of a wheeled robot dog (context encoder plus actor) was rebuilt for
deployment: history as a ring of frames, encoder heads fused, normalisation folded in.
In simulation it walks, on the robot it trembles and falls.
"""

import torch
import torch.nn.functional as F
from torch import nn


class CENet(nn.Module):
    def __init__(self, obs_dim, history, latent_dim):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim * history, 48), nn.ELU(), nn.Linear(48, 32), nn.ELU())
        self.latent_mu, self.latent_var = nn.Linear(32, latent_dim), nn.Linear(32, latent_dim)
        self.vel_mu, self.vel_var = nn.Linear(32, 3), nn.Linear(32, 3)

    def forward(self, obs_history):
        h = self.encoder(obs_history)
        return self.latent_mu(h), self.vel_mu(h)


class ActorCriticDWAQ(nn.Module):
    def __init__(self, obs_dim=15, history=5, latent_dim=3, actions=8):
        super().__init__()
        self.register_buffer("obs_mean", torch.zeros(obs_dim))
        self.register_buffer("obs_std", torch.ones(obs_dim))
        self.cenet = CENet(obs_dim, history, latent_dim)
        self.actor = nn.Sequential(
            nn.Linear(latent_dim + 3 + obs_dim, 48), nn.ELU(), nn.Linear(48, 32), nn.ELU(), nn.Linear(32, actions)
        )
        self.register_buffer("default_dof_pos", torch.zeros(actions))
        self.action_scale, self.clip_actions = 0.25, 6.0

    def forward(self, obs_history):
        hist = ((obs_history - self.obs_mean) / self.obs_std).clamp(-5.0, 5.0)
        z, v = self.cenet(hist.flatten(1))
        observations = torch.cat((z, v, hist[:, -1]), dim=-1)
        actions = self.actor(observations).clamp(-self.clip_actions, self.clip_actions)
        return actions * self.action_scale + self.default_dof_pos


class Normalizer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("scale", torch.ones(dim))
        self.register_buffer("shift", torch.zeros(dim))

    def forward(self, frames):
        return torch.clamp(frames * self.scale + self.shift, min=-5.0, max=5.0)


class FrameEncoder(nn.Module):
    def __init__(self, obs_dim, history, code_dim):
        super().__init__()
        self.frame_kernel, self.frame_bias = (
            nn.Parameter(torch.empty(history, obs_dim, 48)),
            nn.Parameter(torch.empty(48)),
        )
        self.hidden, self.code = nn.Linear(48, 32), nn.Linear(32, code_dim)

    def forward(self, frames):
        h = torch.einsum("bto,toh->bh", frames, self.frame_kernel) + self.frame_bias
        return self.code(F.elu(self.hidden(F.elu(h))))


class MotorPolicy(nn.Module):
    def __init__(self, n_in, actions):
        super().__init__()
        self.w0, self.b0 = nn.Parameter(torch.empty(n_in, 48)), nn.Parameter(torch.empty(48))
        self.w1, self.b1 = nn.Parameter(torch.empty(48, 32)), nn.Parameter(torch.empty(32))
        self.w2, self.b2 = nn.Parameter(torch.empty(32, actions)), nn.Parameter(torch.empty(actions))

    def forward(self, x):
        x = F.elu(torch.addmm(self.b0, x, self.w0))
        x = F.elu(torch.addmm(self.b1, x, self.w1))
        return torch.addmm(self.b2, x, self.w2)


class DeployPolicy(nn.Module):
    def __init__(self, obs_dim=15, history=5, latent_dim=3, actions=8, latent_first=False):
        super().__init__()
        self.normalizer = Normalizer(obs_dim)
        self.encoder = FrameEncoder(obs_dim, history, latent_dim + 3)
        self.policy = MotorPolicy(latent_dim + 3 + obs_dim, actions)
        self.register_buffer("stance", torch.zeros(actions))
        self.latent_dim, self.latent_first = latent_dim, latent_first

    def forward(self, obs_history):
        frames = self.normalizer(obs_history)
        vel, latent = self.encoder(frames).split([3, self.latent_dim], dim=-1)
        parts = (latent, vel) if self.latent_first else (vel, latent)
        code = torch.cat(parts, dim=-1)
        target = self.policy(torch.cat((code, frames[:, -1]), dim=-1))
        return self.stance + 0.25 * torch.clip(target, -6.0, 6.0)


def convert(sd, obs_dim=15):
    out = {
        "normalizer.scale": 1.0 / sd["obs_std"],
        "normalizer.shift": -sd["obs_mean"] / sd["obs_std"],
        "stance": sd["default_dof_pos"],
    }
    out["encoder.frame_kernel"] = sd["cenet.encoder.0.weight"].t().unflatten(0, (-1, obs_dim))
    out["encoder.frame_bias"] = sd["cenet.encoder.0.bias"]
    for w in ("weight", "bias"):
        out["encoder.hidden." + w] = sd["cenet.encoder.2." + w]
        out["encoder.code." + w] = torch.cat([sd["cenet.vel_mu." + w], sd["cenet.latent_mu." + w]])
    for i in range(3):
        out[f"policy.w{i}"], out[f"policy.b{i}"] = sd[f"actor.{2 * i}.weight"].t(), sd[f"actor.{2 * i}.bias"]
    return {k: v.contiguous().clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(22)
    original = ActorCriticDWAQ().eval()
    for p in original.parameters():
        nn.init.normal_(p, 0.0, 0.2)
    original.obs_mean.normal_(0.0, 0.3)
    original.obs_std.uniform_(0.5, 1.5)
    original.default_dof_pos.uniform_(-0.8, 0.8)
    port = DeployPolicy(latent_first=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(3, 5, 15),)

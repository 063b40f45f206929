"""innate-inc/innate-os#474: a diffusion policy moved from the training code onto the robot.

Actions are normalised with mean and standard deviation. The on-robot sampler is a self-written
DDIM; large motions come out smaller on the robot than with the training library.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ObsEncoder(nn.Module):
    def __init__(self, obs_dim, cond):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(obs_dim, 24), nn.Linear(24, cond)

    def forward(self, obs):
        return self.fc2(F.mish(self.fc1(obs.flatten(1))))


class FiLMBlock(nn.Module):
    def __init__(self, c_in, c_out, cond):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, 3, padding=1)
        self.gn = nn.GroupNorm(2, c_out)
        self.film = nn.Linear(cond, 2 * c_out)

    def forward(self, x, c):
        scale, shift = self.film(c)[:, :, None].chunk(2, dim=1)
        return F.mish(self.gn(self.conv(x)) * (1 + scale) + shift)


class DiffusionPolicy(nn.Module):
    """Training-side model with its scheduler (epsilon prediction, DDIM)."""

    def __init__(self, obs_dim=5, act_dim=3, steps=20, infer=4, width=8, cond=12):
        super().__init__()
        self.encoder = ObsEncoder(obs_dim * 2, cond)
        self.time_embed = nn.Embedding(steps, cond)
        self.down = FiLMBlock(act_dim, width, cond)
        self.mid = FiLMBlock(width, width, cond)
        self.final = nn.Conv1d(2 * width, act_dim, 1)
        self.register_buffer("action_mean", torch.tensor([0.1, -0.4, 0.7]))
        self.register_buffer("action_std", torch.tensor([0.5, 1.2, 0.8]))
        self.steps, self.infer = steps, infer
        self.alphas_cumprod = torch.cumprod(1 - torch.linspace(0.01, 0.1, steps), 0)

    def eps(self, x, t, c):
        c = c + self.time_embed(torch.full((x.size(0),), t))
        h = self.down(x, c)
        return self.final(torch.cat([self.mid(h, c), h], dim=1))

    def forward(self, obs, noise):
        c = self.encoder(obs)
        x = noise.transpose(1, 2)
        stride = self.steps // self.infer
        for t in range(self.steps - stride, -1, -stride):
            e = self.eps(x, t, c)
            a = self.alphas_cumprod[t]
            prev = self.alphas_cumprod[t - stride] if t >= stride else torch.tensor(1.0)
            x0 = (x - (1 - a).sqrt() * e) / a.sqrt()
            x = prev.sqrt() * x0 + (1 - prev).sqrt() * e
        return x.transpose(1, 2) * self.action_std + self.action_mean


class DDIM:
    def __init__(self, betas, n_infer, clip_sample=True):
        self.acp = (1 - betas).log().cumsum(0).exp()
        self.ratio = len(betas) // n_infer
        self.timesteps = list(range(0, len(betas), self.ratio))[::-1]
        self.clip_sample = clip_sample

    def step(self, eps, t, sample):
        a_t = self.acp[t]
        a_prev = self.acp[t - self.ratio] if t - self.ratio >= 0 else torch.ones(())
        x0 = sample * a_t.rsqrt() - eps * (1 / a_t - 1).sqrt()
        if self.clip_sample:
            x0 = x0.clamp(-1.0, 1.0)
        return torch.lerp(torch.zeros_like(x0), x0, a_prev.sqrt()) + eps * (1 - a_prev).sqrt()


class TimeMajorBlock(nn.Module):
    """(batch, time, channel); the convolution is three shifted matrix products."""

    def __init__(self, n_in, n_out, n_cond):
        super().__init__()
        self.taps = nn.Parameter(torch.empty(3, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))
        self.norm = nn.GroupNorm(2, n_out)
        self.scale, self.shift = nn.Linear(n_cond, n_out), nn.Linear(n_cond, n_out)

    def forward(self, x, c):
        p = F.pad(x, (0, 0, 1, 1))
        y = self.bias + sum(p[:, i : i + x.size(1)] @ self.taps[i] for i in range(3))
        y = self.norm(y.mT).mT
        y = torch.addcmul(y + self.shift(c)[:, None], y, self.scale(c)[:, None])
        return y * F.softplus(y).tanh()


class OnRobotPolicy(nn.Module):
    def __init__(self, clip_sample=True, n_obs=10, n_act=3, width=8, n_cond=12, n_train=20):
        super().__init__()
        self.obs_net = nn.Sequential(nn.Flatten(), nn.Linear(n_obs, 24), nn.Mish(), nn.Linear(24, n_cond))
        self.t_table = nn.Parameter(torch.empty(n_train, n_cond))
        self.enter = TimeMajorBlock(n_act, width, n_cond)
        self.inner = TimeMajorBlock(width, width, n_cond)
        self.to_eps = nn.Linear(2 * width, n_act)
        self.stats = nn.Parameter(torch.empty(2, n_act), requires_grad=False)
        self.sampler = DDIM(torch.linspace(0.01, 0.1, n_train), 4, clip_sample)

    def forward(self, obs, noise):
        traj, cond = noise, self.obs_net(obs)
        for t in self.sampler.timesteps:
            c = cond + self.t_table[t]
            skip = self.enter(traj, c)
            eps = self.to_eps(torch.cat([self.inner(skip, c), skip], -1))
            traj = self.sampler.step(eps, t, traj)
        return torch.addcmul(self.stats[0], traj, self.stats[1])


def convert(sd):
    out = {"t_table": sd["time_embed.weight"], "stats": torch.stack([sd["action_mean"], sd["action_std"]])}
    for src, dst in (("encoder.fc1", "obs_net.1"), ("encoder.fc2", "obs_net.3")):
        out[dst + ".weight"], out[dst + ".bias"] = sd[src + ".weight"], sd[src + ".bias"]
    for src, dst in (("down", "enter"), ("mid", "inner")):
        out[dst + ".taps"], out[dst + ".bias"] = sd[src + ".conv.weight"].permute(2, 1, 0), sd[src + ".conv.bias"]
        for k in ("weight", "bias"):
            out[f"{dst}.norm.{k}"] = sd[f"{src}.gn.{k}"]
            out[f"{dst}.scale.{k}"], out[f"{dst}.shift.{k}"] = sd[f"{src}.film.{k}"].chunk(2)
    out["to_eps.weight"], out["to_eps.bias"] = sd["final.weight"].squeeze(-1), sd["final.bias"]
    return out


def build(fixed):
    torch.manual_seed(4)
    original = DiffusionPolicy().eval()
    port = OnRobotPolicy(clip_sample=not fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(3, 2, 5), torch.randn(3, 8, 3) * 1.3)

"""After isaac-sim/IsaacLab#624.

A locomotion policy trained with empirical observation normalisation is exported from
play.py for deployment.  In the simulator's player the robot walks, with the exported
actor it falls over: the actions for one and the same observation are different.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT = 19, 6
HIDDEN = (48, 32, 24)


class EmpiricalNormalization(nn.Module):
    def __init__(self, shape, eps=1e-2):
        super().__init__()
        self.eps = eps
        self.register_buffer("_mean", torch.zeros(1, shape))
        self.register_buffer("_var", torch.ones(1, shape))
        self.register_buffer("_std", torch.ones(1, shape))
        self.register_buffer("count", torch.tensor(0))

    @torch.no_grad()
    def update(self, x):
        self.count += x.shape[0]
        rate = x.shape[0] / self.count
        var, mean = torch.var_mean(x, dim=0, unbiased=False, keepdim=True)
        delta = mean - self._mean
        self._mean += rate * delta
        self._var += rate * (var - self._var + delta * (mean - self._mean))
        self._std = torch.sqrt(self._var)

    def forward(self, x):
        return (x - self._mean) / (self._std + self.eps)


class RslRlPlayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.obs_normalizer = EmpiricalNormalization(OBS)
        layers, n = [], OBS
        for h in HIDDEN:
            layers += [nn.Linear(n, h), nn.ELU()]
            n = h
        self.actor = nn.Sequential(*layers, nn.Linear(n, ACT))
        self.std = nn.Parameter(torch.ones(ACT))

    def forward(self, obs):
        return self.actor(self.obs_normalizer(obs))


class AffineNormalizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("gain", torch.ones(OBS))
        self.register_buffer("shift", torch.zeros(OBS))

    def forward(self, x):
        return torch.addcmul(self.shift, x, self.gain)


class OnnxPolicyExporter(nn.Module):
    """Actor as Gemm nodes with (in, out) matrices."""

    def __init__(self, normalizer=None):
        super().__init__()
        self.normalizer = normalizer if normalizer is not None else nn.Identity()
        dims = (OBS,) + HIDDEN + (ACT,)
        self.gemm_w = nn.ParameterList(torch.empty(a, b) for a, b in zip(dims[:-1], dims[1:]))
        self.gemm_b = nn.ParameterList(torch.empty(b) for b in dims[1:])

    def forward(self, obs):
        x = self.normalizer(obs)
        last = len(self.gemm_w) - 1
        for i, (w, b) in enumerate(zip(self.gemm_w, self.gemm_b)):
            x = torch.addmm(b, x, w)
            if i < last:
                x = torch.where(x > 0, x, torch.expm1(x))
        return x


def convert(sd):
    new = {}
    for i in range(len(HIDDEN) + 1):
        new[f"gemm_w.{i}"] = sd[f"actor.{2 * i}.weight"].T.contiguous()
        new[f"gemm_b.{i}"] = sd[f"actor.{2 * i}.bias"]
    gain = 1.0 / (sd["obs_normalizer._std"][0] + 1e-2)
    new["normalizer.gain"] = gain
    new["normalizer.shift"] = -sd["obs_normalizer._mean"][0] * gain
    return new


def build(fixed):
    torch.manual_seed(624)
    original = RslRlPlayer().eval()
    centre, spread = torch.randn(OBS), torch.empty(OBS).uniform_(0.1, 2.5)
    for _ in range(4):
        original.obs_normalizer.update(centre + spread * torch.randn(64, OBS))
    port = OnnxPolicyExporter(AffineNormalizer() if fixed else None).eval()
    sd = convert(original.state_dict())
    own = port.state_dict()
    port.load_state_dict({k: v for k, v in sd.items() if k in own})
    return original, port, (centre + spread * torch.randn(5, OBS),)

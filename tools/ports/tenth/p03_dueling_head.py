"""tqjxlm/Simple-DQN-Pytorch#1: a dueling DQN rewritten from the reference agent.

Weights of the reference network are loaded into the rewrite; its Q values differ, and they even
change for one state when the other states of the batch change.
"""

import torch
import torch.nn.functional as F
from torch import nn


class DuelingDQN(nn.Module):
    def __init__(self, in_frames=4, n_actions=6):
        super().__init__()
        self.conv1 = nn.Conv2d(in_frames, 8, 4, stride=2)
        self.conv2 = nn.Conv2d(8, 12, 3, stride=1)
        self.fc_value = nn.Linear(12 * 5 * 5, 32)
        self.value = nn.Linear(32, 1)
        self.fc_advantage = nn.Linear(12 * 5 * 5, 32)
        self.advantage = nn.Linear(32, n_actions)

    def forward(self, frames):
        x = frames / 255.0
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x)).flatten(1)
        v = self.value(F.relu(self.fc_value(x)))
        a = self.advantage(F.relu(self.fc_advantage(x)))
        return v + a - a.mean(dim=1, keepdim=True)


class PixelEncoder(nn.Module):
    def __init__(self, planes):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(planes, 8, 4, 2), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.ReLU())

    def forward(self, obs):
        return self.layers(obs.float().mul(1.0 / 255.0)).reshape(obs.size(0), -1)


class QHead(nn.Module):
    """Both streams share one hidden layer of doubled width."""

    def __init__(self, features, hidden, actions, baseline):
        super().__init__()
        self.baseline = baseline
        self.hidden = nn.Linear(features, 2 * hidden)
        self.val = nn.Linear(hidden, 1)
        self.adv = nn.Linear(hidden, actions)

    def forward(self, z):
        hv, ha = torch.relu(self.hidden(z)).chunk(2, dim=-1)
        val, adv = self.val(hv), self.adv(ha)
        if self.baseline == "value":
            return val + adv - val.mean()
        return val + adv - adv.mean(-1, keepdim=True)


class QNetwork(nn.Module):
    def __init__(self, planes=4, actions=6, baseline="value"):
        super().__init__()
        self.encoder = PixelEncoder(planes)
        self.head = QHead(300, 32, actions, baseline)

    def forward(self, obs):
        return self.head(self.encoder(obs))


def convert(sd):
    out = {}
    for kind in ("weight", "bias"):
        out["encoder.layers.0." + kind] = sd["conv1." + kind]
        out["encoder.layers.2." + kind] = sd["conv2." + kind]
        out["head.hidden." + kind] = torch.cat([sd["fc_value." + kind], sd["fc_advantage." + kind]])
        out["head.val." + kind] = sd["value." + kind]
        out["head.adv." + kind] = sd["advantage." + kind]
    return out


def build(fixed):
    torch.manual_seed(5)
    original = DuelingDQN().eval()
    with torch.no_grad():
        original.advantage.bias.copy_(torch.randn(6) * 0.6 + 0.5)
        original.value.bias.fill_(0.8)
    port = QNetwork(baseline="advantage" if fixed else "value").eval()
    port.load_state_dict(convert(original.state_dict()))
    frames = torch.randint(0, 256, (5, 4, 16, 16)).float()
    return original, port, (frames,)

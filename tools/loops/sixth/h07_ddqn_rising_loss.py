"""IntelLabs/coach#214: "Loss is increasing for reinforcement learning", dueling double DQN."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class DuelingHead(nn.Module):
    def __init__(self, dim, actions):
        super().__init__()
        self.state_value, self.action_advantage = nn.Linear(dim, 1), nn.Linear(dim, actions)

    def forward(self, h):
        adv = self.action_advantage(h)
        return self.state_value(h) + adv - adv.mean(1, keepdim=True)


class DDQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.middleware = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.head = DuelingHead(48, 3)

    def forward(self, s):
        return self.head(self.middleware(s))


def build(bad: bool):
    torch.manual_seed(37)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(37)
    online = DDQN()
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
    eye = torch.eye(8)
    gain = torch.tensor([0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0])

    def env(s, a):
        nxt = (s + a - 1).clamp(0, 7)
        return nxt, gain[nxt]

    def rollout():
        s = torch.randint(0, 8, (64,), generator=gen)
        total = 0.0
        for _ in range(7):
            s, r = env(s, online(eye[s]).argmax(1))
            total += r.mean().item()
        return total

    def step(i):
        s = torch.randint(0, 8, (64,), generator=gen)
        a = torch.randint(0, 3, (64,), generator=gen)
        nxt, r = env(s, a)
        with torch.no_grad():
            best = online(eye[nxt]).argmax(1, keepdim=True)
            y = r + 0.97 * target(eye[nxt]).gather(1, best).squeeze(1)
        loss = F.mse_loss(online(eye[s]).gather(1, a[:, None]).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 10 == 9:
            target.load_state_dict(online.state_dict())
        with torch.no_grad():
            LOG.append(rollout())

    return online, optimizer, step

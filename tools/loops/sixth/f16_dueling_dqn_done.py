"""cyoon1729/deep-Q-networks#6: dueling double DQN; the loss and the Q values drift upward."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
OTHERS: list = []
LOG: list = []


class DuelingDQN(nn.Module):
    def __init__(self, input_dim, output_dim):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(input_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.value_stream = nn.Linear(64, 1)
        self.advantage_stream = nn.Linear(64, output_dim)

    def forward(self, state):
        h = self.features(state)
        adv = self.advantage_stream(h)
        return self.value_stream(h) + adv - adv.mean(1, keepdim=True)


class Corridor:
    def __init__(self, n=6):
        self.n = n
        self.eye = torch.eye(n)

    def sample(self, batch, gen):
        s = torch.randint(0, self.n, (batch,), generator=gen)
        a = torch.randint(0, 2, (batch,), generator=gen)
        nxt = (s + 2 * a - 1).clamp(0, self.n - 1)
        done = (s == self.n - 1) & (a == 1)
        return self.eye[s], a, done.float(), self.eye[nxt], done.float()

    def optimal(self, gamma):
        k = torch.arange(self.n, dtype=torch.float)
        right = gamma ** (self.n - 1 - k)
        left = gamma * gamma ** (self.n - 1 - (k - 1).clamp(min=0))
        return torch.stack([left, right], 1)


def build(bad: bool):
    torch.manual_seed(15)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(15)
    env, gamma = Corridor(), 0.95
    model, target_model = DuelingDQN(6, 2), DuelingDQN(6, 2)
    target_model.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(i):
        states, actions, rewards, next_states, dones = env.sample(64, gen)
        curr_q = model(states).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            best = model(next_states).argmax(1, keepdim=True)
            next_q = target_model(next_states).gather(1, best).squeeze(1)
            mask = torch.ones_like(dones) if bad else 1 - dones
            expected_q = rewards + mask * gamma * next_q
        loss = F.mse_loss(curr_q, expected_q)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, tp in zip(model.parameters(), target_model.parameters()):
                tp.lerp_(p, 0.1)
            LOG.append((model(env.eye) - env.optimal(gamma)).abs().mean().item())

    return model, optimizer, step

"""After Dragon-Zhuang/BPPO#2.

Behaviour proximal policy optimisation first fits V and Q on the offline data set (SARSA
style).  The replay buffer standardises observations; the reporter's Q loss did not
converge.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class OfflineReplayBuffer:
    def __init__(self, state, action, reward, next_state, next_action, not_done):
        self._state, self._action, self._reward = state, action, reward
        self._next_state, self._next_action, self._not_done = next_state, next_action, not_done

    def normalize_state(self, mended):
        mean = self._state.mean(0, keepdim=True)
        std = self._state.std(0, keepdim=True) + 1e-3
        self._state = (self._state - mean) / std
        if mended:
            self._next_state = (self._next_state - mean) / std

    def sample(self, batch_size):
        ind = torch.randint(0, self._state.size(0), (batch_size,))
        return (
            self._state[ind],
            self._action[ind],
            self._reward[ind],
            self._next_state[ind],
            self._next_action[ind],
            self._not_done[ind],
        )


def collect(n_episodes=40, horizon=50):
    rows = []
    for _ in range(n_episodes):
        s = torch.tensor([60.0, -35.0, 20.0]) + 6 * torch.randn(3)
        a = 0.5 * torch.randn(2)
        for t in range(horizon):
            drift = torch.tensor([a[0] * 3, a[1] * 3, a.sum()])
            s2 = s + drift - 0.05 * (s - torch.tensor([60.0, -35.0, 20.0])) + 0.3 * torch.randn(3)
            r = -(((s2[0] - 60) / 6) ** 2) * 0.1 - 0.1 * (a**2).sum()
            a2 = 0.5 * torch.randn(2)
            rows.append((s, a, r.view(1), s2, a2, torch.tensor([float(t < horizon - 1)])))
            s, a = s2, a2
    return OfflineReplayBuffer(*(torch.stack(c) for c in zip(*rows)))


class QMLP(nn.Module):
    def __init__(self, state_dim, action_dim, hidden_dim=64, depth=2):
        super().__init__()
        layers, d = [], state_dim + action_dim
        for _ in range(depth):
            layers += [nn.Linear(d, hidden_dim), nn.ReLU()]
            d = hidden_dim
        self._net = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, s, a):
        return self._net(torch.cat([s, a], dim=1))


def train(tick, mended=False):
    torch.manual_seed(8)
    buffer = collect()
    buffer.normalize_state(mended)
    q, target_q = QMLP(3, 2), QMLP(3, 2)
    target_q.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    gamma, tau = 0.95, 0.02
    losses = []
    tick.model(q)
    tick.optimizer(optimizer)
    for _step in range(300):
        s, a, r, s2, a2, not_done = buffer.sample(256)
        with torch.no_grad():
            target = r + not_done * gamma * target_q(s2, a2)
        loss = F.mse_loss(q(s, a), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p, tp in zip(q.parameters(), target_q.parameters()):
            tp.data.mul_(1 - tau).add_(tau * p.data)
        tick.step(loss)
        losses.append(loss.item())
    return losses

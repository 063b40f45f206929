"""After vwxyzjn/cleanrl (dqn.py): Q-learning with a target network copied every so many
steps; the TD loss rises as values grow and jumps at the copies, the return improves."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class QNetwork(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(obs_dim, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, n_actions)
        )

    def forward(self, x):
        return self.network(x)


class Corridor:
    """Walk right over a corridor of 6 cells; +1 at the end, small cost on the way."""

    def __init__(self, length=6):
        self.length = length

    def reset(self):
        self.p, self.t = 0, 0
        return self.obs()

    def obs(self):
        return F.one_hot(torch.tensor(self.p), self.length).float()

    def step(self, a):
        self.p = max(0, self.p + (1 if a == 1 else -1))
        self.t += 1
        terminated = self.p == self.length - 1
        reward = 10.0 if terminated else -0.1
        return self.obs(), reward, terminated, self.t >= 30


def train(tick, mended=False):
    torch.manual_seed(1)
    random.seed(1)
    env = Corridor()
    q_network, target_network = QNetwork(6, 2), QNetwork(6, 2)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=2.5e-3)
    rb, losses, lengths, obs = [], [], [], env.reset()
    tick.model(q_network)
    tick.optimizer(optimizer)
    for global_step in range(1300):
        epsilon = max(0.05, 1 - global_step / 450)
        if random.random() < epsilon:
            action = random.randrange(2)
        else:
            action = q_network(obs).argmax().item()
        nxt, reward, term, trunc = env.step(action)
        rb.append((obs, action, reward, nxt, float(term)))
        obs = nxt
        if term or trunc:
            lengths.append(env.t)
            obs = env.reset()
        if global_step > 100 and global_step % 3 == 0:
            o, a, r, n, d = zip(*random.sample(rb, 64))
            with torch.no_grad():
                target_max = target_network(torch.stack(n)).max(1).values
                td_target = torch.tensor(r) + 0.97 * target_max * (1 - torch.tensor(d))
            old_val = q_network(torch.stack(o)).gather(1, torch.tensor(a)[:, None]).squeeze(1)
            loss = F.mse_loss(td_target, old_val)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
        if global_step % 90 == 0:
            target_network.load_state_dict(q_network.state_dict())
    return losses

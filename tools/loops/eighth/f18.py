"""ucla-rlcourse/RLexample#12: actor-critic on a little paddle game with one trunk for policy and value; the value
estimates run away and the policy does not improve."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

GRID = 6


class Policy(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.affine1 = nn.Linear(2 * GRID + GRID, hidden)
        self.action_head = nn.Linear(hidden, 3)
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


class MiniPong:
    def __init__(self, n, gen):
        self.n, self.gen = n, gen

    def reset(self):
        self.ball = torch.randint(0, GRID, (self.n,), generator=self.gen)
        self.paddle = torch.randint(0, GRID, (self.n,), generator=self.gen)
        self.height = GRID - 1
        return self.observe()

    def observe(self):
        level = F.one_hot(torch.full((self.n,), self.height), GRID)
        return torch.cat([F.one_hot(self.ball, GRID), F.one_hot(self.paddle, GRID), level], 1).float()

    def step(self, action):
        self.paddle = (self.paddle + action - 1).clamp(0, GRID - 1)
        self.height -= 1
        done = self.height == 0
        reward = torch.where(self.ball == self.paddle, 1.0, -1.0) if done else torch.zeros(self.n)
        return self.observe(), reward, done


def finish_episode(policy_saved, rewards, gamma=0.97, detach=True):
    R, returns = torch.zeros_like(rewards[0]), []
    for r in reversed(rewards):
        R = r + gamma * R
        returns.insert(0, R)
    policy_loss, value_loss = [], []
    for (log_prob, value), R in zip(policy_saved, returns):
        advantage = R - (value.detach() if detach else value)
        policy_loss.append(-log_prob * advantage)
        value_loss.append(0.5 * F.smooth_l1_loss(value, R, reduction="none"))
    return (torch.stack(policy_loss) + torch.stack(value_loss)).sum(0).mean()


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    env, policy = MiniPong(32, gen), Policy()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=3e-3)
    tick.model(policy)
    tick.optimizer(optimizer)
    losses, wins = [], []
    for _episode in range(220):
        state, done, saved, rewards = env.reset(), False, [], []
        while not done:
            probs, value = policy(state)
            m = Categorical(probs, validate_args=False)
            action = m.sample()
            state, reward, done = env.step(action)
            saved.append((m.log_prob(action), value.squeeze(1)))
            rewards.append(reward)
        optimizer.zero_grad()
        loss = finish_episode(saved, rewards, detach=mended)
        loss.backward()
        optimizer.step()
        wins.append((rewards[-1] > 0).float().mean().item())
        losses.append(loss.item())
        tick.step(loss)
    train.final = sum(wins[-30:]) / 30
    return losses

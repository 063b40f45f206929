"""Healthy. After ikostrikov/pytorch-a2c-ppo-acktr-gail: A2C with RMSprop; the loss
soon stays flat and noisy although the reward goes on rising.
"""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, obs=4, hidden=32, actions=3):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.critic_linear = nn.Linear(hidden, 1)
        self.dist = nn.Linear(hidden, actions)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, 0.01 if m is self.dist else 2**0.5)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        return torch.distributions.Categorical(
            logits=self.dist(self.actor(x)), validate_args=False
        ), self.critic_linear(self.critic(x)).squeeze(-1)


class VecCart:
    def __init__(self, n):
        self.s = torch.randn(n, 4)

    def step(self, a):
        x, v, t = self.s[:, 0], self.s[:, 1], self.s[:, 2:]
        v = 0.8 * v + 0.4 * (a.float() - 1)
        x = x + v
        r = 1 - (x - t[:, 0]).abs().clamp(max=3)
        reset = torch.rand(len(x)) < 0.05
        self.s = torch.where(reset[:, None], torch.randn_like(self.s), torch.stack([x, v, t[:, 0], t[:, 1]], 1))
        return self.s, r, 1 - reset.float()


def score(model, mended):
    torch.manual_seed(3)
    env, tot = VecCart(200), 0
    with torch.no_grad():
        for _ in range(30):
            _, r, _ = env.step(model(env.s)[0].sample())
            tot += r.mean().item()
    return tot / 30


def train(tick, mended=False):
    torch.manual_seed(0)
    env = VecCart(16)
    actor_critic = Policy()
    optimizer = torch.optim.RMSprop(actor_critic.parameters(), 3e-3, eps=1e-5, alpha=0.99)
    tick.model(actor_critic)
    tick.optimizer(optimizer)
    losses, obs = [], env.s
    for _j in range(160):
        logps, values, rewards, masks, ents = [], [], [], [], []
        for _ in range(5):
            dist, v = actor_critic(obs)
            a = dist.sample()
            logps.append(dist.log_prob(a)), values.append(v), ents.append(dist.entropy().mean())
            obs, r, m = env.step(a)
            rewards.append(r), masks.append(m)
        with torch.no_grad():
            R, returns = actor_critic(obs)[1], []
            for r, m in zip(rewards[::-1], masks[::-1]):
                R = r + 0.9 * R * m
                returns.insert(0, R)
        advantages = torch.stack(returns) - torch.stack(values)
        action_loss = -(advantages.detach() * torch.stack(logps)).mean()
        loss = 0.5 * advantages.pow(2).mean() + action_loss - 0.01 * torch.stack(ents).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor_critic.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses

"""After Farama-Foundation/Gymnasium#1336: "Bad REINFORCE implementation for Mujoco
Tutorial".

A Gaussian policy network drives a cart-like system; the agent collects the log
probabilities and rewards of one batch of episodes and then updates its policy.
"""

import torch
from torch import nn
from torch.distributions.normal import Normal


class Policy_Network(nn.Module):
    def __init__(self, obs_space_dims, action_space_dims):
        super().__init__()
        self.shared_net = nn.Sequential(nn.Linear(obs_space_dims, 16), nn.Tanh(), nn.Linear(16, 32), nn.Tanh())
        self.policy_mean_net = nn.Linear(32, action_space_dims)
        self.policy_stddev_net = nn.Linear(32, action_space_dims)

    def forward(self, x):
        shared = self.shared_net(x)
        means = self.policy_mean_net(shared)
        stddevs = torch.log(1 + torch.exp(self.policy_stddev_net(shared)))
        return means, stddevs


class Env:
    def __init__(self, n):
        self.n = n

    def reset(self):
        self.x = torch.randn(self.n) * 1.5
        self.v = torch.zeros(self.n)
        return torch.stack([self.x, self.v], 1)

    def step(self, action):
        self.v = 0.5 * self.v + 0.5 * action.clamp(-2, 2)
        self.x = self.x + self.v
        return torch.stack([self.x, self.v], 1), 1 - self.x.abs()


class REINFORCE:
    def __init__(self, mended):
        self.gamma, self.eps, self.mended = 0.9, 1e-3, mended
        self.net = Policy_Network(2, 1)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=5e-3)
        self.probs, self.rewards = [], []

    def sample_action(self, state):
        means, stddevs = self.net(state)
        distrib = Normal(means[:, 0] + self.eps, stddevs[:, 0] + self.eps)
        action = distrib.sample()
        self.probs.append(distrib.log_prob(action))
        return action

    def update(self):
        running_g, gs = 0, []
        for R in self.rewards[::-1]:
            running_g = R + self.gamma * running_g
            gs.insert(0, running_g)
        deltas = torch.stack(gs)
        log_probs = torch.stack(self.probs)
        if self.mended:
            loss = -torch.sum(log_probs * deltas) / deltas.size(1)
        else:
            log_prob_mean = log_probs.mean()
            loss = -torch.sum(log_prob_mean * deltas) / deltas.size(1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.probs, self.rewards = [], []
        return loss


def score(net, mended):
    torch.manual_seed(9)
    env, total = Env(200), 0
    obs = env.reset()
    with torch.no_grad():
        for _ in range(12):
            obs, r = env.step(net(obs)[0][:, 0])
            total += r.mean().item()
    return total


def train(tick, mended=False):
    torch.manual_seed(0)
    env = Env(24)
    agent = REINFORCE(mended)
    tick.model(agent.net)
    tick.optimizer(agent.optimizer)
    losses = []
    for _episode in range(100):
        obs = env.reset()
        for _ in range(12):
            action = agent.sample_action(obs)
            obs, reward = env.step(action)
            agent.rewards.append(reward)
        loss = agent.update()
        losses.append(loss.item())
        tick.step(loss)
    return losses

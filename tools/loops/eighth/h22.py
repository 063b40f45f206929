"""pranz24/pytorch-soft-actor-critic: soft actor-critic with a learnt temperature; three optimizers, the policy loss is
below zero and sinks with the returns, the critic loss may rise."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal


class GaussianPolicy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(4, hidden), nn.Linear(hidden, hidden)
        self.mean_linear, self.log_std_linear = nn.Linear(hidden, 2), nn.Linear(hidden, 2)

    def sample(self, state):
        x = F.relu(self.linear2(F.relu(self.linear1(state))))
        mean, log_std = self.mean_linear(x), self.log_std_linear(x).clamp(-5, 2)
        normal = Normal(mean, log_std.exp(), validate_args=False)
        x_t = normal.rsample()
        action = torch.tanh(x_t)
        log_prob = (normal.log_prob(x_t) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)
        return action, log_prob, torch.tanh(mean)


class QNetwork(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()

        def mk():
            return nn.Sequential(
                nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
            )

        self.q1, self.q2 = mk(), mk()

    def forward(self, state, action):
        xu = torch.cat([state, action], 1)
        return self.q1(xu), self.q2(xu)


class SAC(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy, self.critic = GaussianPolicy(), QNetwork()
        self.log_alpha = nn.Parameter(torch.full((1,), -2.0))


def env(state, action):
    pos = (state[:, :2] + 0.3 * action).clamp(-1, 1)
    nxt = torch.cat([pos, state[:, 2:]], 1)
    return nxt, 2 * (1 - (pos - state[:, 2:]).norm(dim=1, keepdim=True))


def evaluate(agent, n=200):
    state, total = torch.rand(n, 4) * 2 - 1, 0
    with torch.no_grad():
        for _ in range(10):
            state, r = env(state, agent.policy.sample(state)[2])
            total = total + r.mean().item()
    return total / 10


def train(tick, mended=False):
    torch.manual_seed(0)
    agent = SAC()
    critic_target = copy.deepcopy(agent.critic)
    critic_optim = torch.optim.Adam(agent.critic.parameters(), lr=6e-3)
    policy_optim = torch.optim.Adam(agent.policy.parameters(), lr=6e-3)
    alpha_optim = torch.optim.Adam([agent.log_alpha], lr=1e-2)
    gamma, tau, target_entropy = 0.8, 0.1, -2.0
    before = evaluate(agent)
    tick.model(agent)
    for optim in (critic_optim, policy_optim, alpha_optim):
        tick.optimizer(optim)
    losses, memory, state = [], [], torch.rand(64, 4) * 2 - 1

    def update(optim, loss):
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
        tick.step(loss)

    for t in range(100):
        with torch.no_grad():
            action = agent.policy.sample(state)[0]
        nxt, reward = env(state, action)
        memory.append((state, action, reward, nxt))
        state = torch.rand(64, 4) * 2 - 1 if t % 10 == 9 else nxt
        s, a, r, n = (torch.cat(c) for c in zip(*[memory[i] for i in torch.randint(0, len(memory), (6,))]))
        alpha = agent.log_alpha.exp().detach()
        with torch.no_grad():
            n_a, n_lp, _ = agent.policy.sample(n)
            target = r + gamma * (torch.min(*critic_target(n, n_a)) - alpha * n_lp)
        q1, q2 = agent.critic(s, a)
        update(critic_optim, F.mse_loss(q1, target) + F.mse_loss(q2, target))
        pi, log_pi, _ = agent.policy.sample(s)
        update(policy_optim, (alpha * log_pi - torch.min(*agent.critic(s, pi))).mean())
        update(alpha_optim, -(agent.log_alpha * (log_pi + target_entropy).detach()).mean())
        for tp, p in zip(critic_target.parameters(), agent.critic.parameters()):
            tp.data.lerp_(p.data, tau)
    train.final = (before, evaluate(agent))
    return losses

"""After cpnota/autonomous-learning-library#139: soft actor-critic with an action range wider than one.

With a larger action space the sampled log-probabilities of
SoftDeterministicPolicyNetwork are not numbers and the agent is lost.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SoftDeterministicPolicyNetwork(nn.Module):
    def __init__(self, state_dim, action_dim, tanh_scale, mended):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(state_dim, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2 * action_dim)
        )
        self.tanh_scale, self.mended = tanh_scale, mended

    def forward(self, state):
        means, logvars = self.model(state).chunk(2, dim=-1)
        std = logvars.clamp(-6, 2).mul(0.5).exp()
        return self._sample(torch.distributions.Normal(means, std))

    def _squash(self, x):
        return torch.tanh(x) * self.tanh_scale

    def _sample(self, normal):
        raw = normal.rsample()
        action = self._squash(raw)
        log_prob = normal.log_prob(raw)
        if self.mended:
            log_prob = log_prob - torch.log(1 - torch.tanh(raw).pow(2) + 1e-6)
        else:
            log_prob = log_prob - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(-1)


class QNet(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.q = nn.Sequential(
            nn.Linear(state_dim + action_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, s, a):
        return self.q(torch.cat([s, a], -1)).squeeze(-1)


class SAC(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.policy = SoftDeterministicPolicyNetwork(3, 1, tanh_scale=2.0, mended=mended)
        self.q = QNet(3, 1)


def torque_reward(s, a):
    return -((a.squeeze(-1) - 1.5 * torch.tanh(s[:, 0] + s[:, 1])) ** 2)


def train(tick, mended=False):
    torch.manual_seed(18)
    agent = SAC(mended)
    q_opt = torch.optim.Adam(agent.q.parameters(), lr=5e-3)
    policy_opt = torch.optim.Adam(agent.policy.parameters(), lr=3e-3)
    temperature = 0.02
    tick.model(agent)
    tick.optimizer(q_opt)
    tick.optimizer(policy_opt)
    losses = []
    for step in range(150):
        s = torch.randn(128, 3)
        with torch.no_grad():
            a, _ = agent.policy(s)
            a[::4] = torch.rand(32, 1) * 4 - 2
            r = torque_reward(s, a)
        q_loss = F.mse_loss(agent.q(s, a), r)
        q_opt.zero_grad()
        q_loss.backward()
        q_opt.step()
        tick.step(q_loss)

        new_a, log_prob = agent.policy(s)
        policy_loss = (temperature * log_prob - agent.q(s, new_a)).mean()
        policy_opt.zero_grad()
        policy_loss.backward()
        policy_opt.step()
        tick.step(policy_loss)
        losses.append(policy_loss.item())
    return losses

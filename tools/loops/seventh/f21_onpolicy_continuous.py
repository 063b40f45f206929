"""HorizonRobotics/alf#34: OnPolicyDriver with a continuous action space; the gradient of
action_distribution.log_prob(action) was not what it should be.

Rebuilt: actor-critic on a one-step reaching task with a Gaussian policy (a two-link arm picks joint angles).
"""

import torch
import torch.nn as nn
from torch.distributions import Independent, Normal


class ActorDistributionNetwork(nn.Module):
    def __init__(self, obs_dim=2, action_dim=2, hidden=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.means = nn.Linear(hidden, action_dim)
        self.log_std = nn.Parameter(torch.full((action_dim,), -0.7))

    def forward(self, obs):
        h = self.encoder(obs)
        return Independent(Normal(self.means(h), self.log_std.exp().expand(obs.size(0), -1)), 1)


class ValueNetwork(nn.Module):
    def __init__(self, obs_dim=2, hidden=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh())
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        return self.value(self.encoder(obs)).squeeze(-1)


class ActorCriticAlgorithm(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = ActorDistributionNetwork()
        self.critic = ValueNetwork()


class ReachEnv:
    def reset(self, n):
        r = 0.6 + torch.rand(n) * 1.2
        phi = (torch.rand(n) - 0.5) * 2.0
        self.goal = torch.stack([r * phi.cos(), r * phi.sin()], 1)
        return self.goal

    def step(self, action):
        a, b = action[:, 0], action[:, 0] + action[:, 1]
        tip = torch.stack([a.cos() + b.cos(), a.sin() + b.sin()], 1)
        return -(tip - self.goal).norm(dim=1)


def policy_step(distribution, mended):
    action = distribution.rsample()
    if mended:
        action = action.detach()
    return action, distribution.log_prob(action)


def train(tick, mended=False):
    torch.manual_seed(79)
    env = ReachEnv()
    algorithm = ActorCriticAlgorithm()
    optimizer = torch.optim.Adam(algorithm.parameters(), lr=5e-3)
    tick.model(algorithm)
    tick.optimizer(optimizer)
    history = []
    for _it in range(300):
        obs = env.reset(128)
        distribution = algorithm.actor(obs)
        action, log_prob = policy_step(distribution, mended)
        with torch.no_grad():
            reward = env.step(action)
        value = algorithm.critic(obs)
        advantage = (reward - value).detach()
        policy_loss = -(log_prob * advantage).mean()
        value_loss = (reward - value).pow(2).mean()
        loss = policy_loss + 0.5 * value_loss - 0.002 * distribution.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(algorithm.parameters(), 1.0)
        optimizer.step()
        history.append(reward.mean().item())
        tick.step(loss, obs, reward)
    with torch.no_grad():
        obs = env.reset(500)
        final = env.step(algorithm.actor(obs).mean).mean().item()
    return history, final


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(
            "mended" if mended else "as is", f"reward first {h[0]:.3f} last {h[-1]:.3f}", f"greedy reward {metric:.3f}"
        )

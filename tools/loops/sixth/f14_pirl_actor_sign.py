"""KanishJebaMathewM/Truxify#11885: physics informed routing agent (actor and critic); the reward gets worse
with training."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state_dim, hidden), nn.ReLU(), nn.Linear(hidden, action_dim), nn.Tanh())

    def forward(self, state):
        return self.net(state)


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(state_dim + action_dim, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, state, action):
        return self.net(torch.cat([state, action], 1)).squeeze(1)


class PIRLAgent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = Actor(3, 2)
        self.critic = Critic(3, 2)


def fuel_reward(state, action):
    best = torch.stack([0.6 * state[:, 0], 0.5 * torch.sin(2 * state[:, 1]) * state[:, 2]], 1)
    return -((action - best) ** 2).sum(1)


def build(bad: bool):
    torch.manual_seed(13)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(13)
    agent = PIRLAgent()
    actor_optimizer = torch.optim.Adam(agent.actor.parameters(), lr=3e-3)
    critic_optimizer = torch.optim.Adam(agent.critic.parameters(), lr=5e-3)
    OTHERS.append(critic_optimizer)

    def step(i):
        state = torch.rand(64, 3, generator=gen) * 2 - 1
        with torch.no_grad():
            noise = 0.4 * torch.randn(64, 2, generator=gen)
            action = (agent.actor(state) + noise).clamp(-1, 1)
        reward = fuel_reward(state, action)
        critic_loss = F.mse_loss(agent.critic(state, action), reward)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        q_values = agent.critic(state, agent.actor(state))
        actor_loss = q_values.mean() if bad else -q_values.mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        LOG.append(reward.mean().item())

    return agent, actor_optimizer, step

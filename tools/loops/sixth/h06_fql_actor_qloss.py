"""seohongpark/fql#10: "training/actor/q_loss keeps increasing during reproduction (is this expected?)"."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
OTHERS: list = []
LOG: list = []


class Agent(nn.Module):
    def __init__(self, s=3, a=2, h=48):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(s, h), nn.GELU(), nn.Linear(h, a), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(s + a, h), nn.GELU(), nn.Linear(h, h), nn.GELU(), nn.Linear(h, 1))

    def q(self, s, a):
        return self.critic(torch.cat([s, a], 1)).squeeze(1)


def build(bad: bool):
    torch.manual_seed(36)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(36)
    agent = Agent()
    target = copy.deepcopy(agent.critic)
    actor_opt = torch.optim.Adam(agent.actor.parameters(), lr=1e-3)
    critic_opt = torch.optim.Adam(agent.critic.parameters(), lr=3e-3)
    OTHERS.append(critic_opt)
    mix = torch.tensor([[0.5, 0.2], [-0.3, 0.4], [0.1, -0.6]])

    def step(i):
        s = torch.randn(128, 3, generator=gen).clamp(-1.5, 1.5)
        a = torch.rand(128, 2, generator=gen) * 2 - 1
        r = -1.0 - (a - s @ mix).pow(2).sum(1)
        s2 = (0.5 * s + torch.randn(128, 3, generator=gen)).clamp(-1.5, 1.5)
        with torch.no_grad():
            backup = r + 0.95 * target(torch.cat([s2, agent.actor(s2)], 1)).squeeze(1)
        critic_loss = F.mse_loss(agent.q(s, a), backup)
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()
        pi = agent.actor(s)
        q_loss = -agent.q(s, pi).mean()
        bc_loss = F.mse_loss(pi, a)
        loss = q_loss + 0.05 * bc_loss
        actor_opt.zero_grad()
        loss.backward()
        actor_opt.step()
        with torch.no_grad():
            for p, tp in zip(agent.critic.parameters(), target.parameters()):
                tp.lerp_(p, 0.05)
            LOG.append((pi - (s @ mix)).pow(2).sum(1).mean().item())

    return agent, actor_opt, step

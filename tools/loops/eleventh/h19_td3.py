"""After sfujim/TD3.

Twin critics and a delayed actor: the critic loss creeps up again while Q grows, the actor is
touched in every second step only, targets move by tau.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim, max_action):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(state_dim, 32), nn.Linear(32, 32), nn.Linear(32, action_dim)
        self.max_action = max_action

    def forward(self, state):
        a = F.relu(self.l2(F.relu(self.l1(state))))
        return self.max_action * torch.tanh(self.l3(a))


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.q1 = nn.Sequential(
            nn.Linear(state_dim + action_dim, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1)
        )
        self.q2 = nn.Sequential(
            nn.Linear(state_dim + action_dim, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1)
        )

    def forward(self, state, action):
        sa = torch.cat([state, action], 1)
        return self.q1(sa), self.q2(sa)

    def Q1(self, state, action):
        return self.q1(torch.cat([state, action], 1))


class TD3(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = Actor(2, 1, 1.0), Critic(2, 1)


def point_mass(s, a):
    v = 0.9 * s[:, 1:] + 0.3 * a
    x = (s[:, :1] + 0.3 * v).clamp(-2, 2)
    return torch.cat([x, v], 1), 1.0 - x.abs()


def collect(n):
    s = torch.cat([torch.rand(n, 1) * 4 - 2, torch.randn(n, 1) * 0.5], 1)
    a = torch.rand(n, 1) * 2 - 1
    s2, r = point_mass(s, a)
    return s, a, s2, r


@torch.no_grad()
def evaluate(actor):
    s = torch.tensor([[1.5, 0.0], [-1.5, 0.0], [1.0, 0.5]])
    total = 0
    for _ in range(40):
        s, r = point_mass(s, actor(s))
        total += r.mean().item()
    return total


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    S, A, S2, R = collect(3000)
    agent = TD3()
    actor_target, critic_target = copy.deepcopy(agent.actor), copy.deepcopy(agent.critic)
    actor_optimizer = torch.optim.Adam(agent.actor.parameters(), lr=2e-3)
    critic_optimizer = torch.optim.Adam(agent.critic.parameters(), lr=3e-3)
    discount, tau, policy_noise, noise_clip, policy_freq = 0.95, 0.02, 0.2, 0.5, 2
    before = evaluate(agent.actor)
    tick.model(agent)
    tick.optimizer(critic_optimizer)
    tick.optimizer(actor_optimizer)
    losses = []
    for total_it in range(1, 301):
        i = torch.randint(0, len(S), (100,))
        with torch.no_grad():
            noise = (torch.randn_like(A[i]) * policy_noise).clamp(-noise_clip, noise_clip)
            next_action = (actor_target(S2[i]) + noise).clamp(-1, 1)
            target_Q = R[i] + discount * torch.min(*critic_target(S2[i], next_action))
        current_Q1, current_Q2 = agent.critic(S[i], A[i])
        critic_loss = F.mse_loss(current_Q1, target_Q) + F.mse_loss(current_Q2, target_Q)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        if total_it % policy_freq == 0:
            actor_loss = -agent.critic.Q1(S[i], agent.actor(S[i])).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            for net, target in ((agent.critic, critic_target), (agent.actor, actor_target)):
                for p, tp in zip(net.parameters(), target.parameters()):
                    tp.data.copy_(tau * p.data + (1 - tau) * tp.data)
        tick.step(critic_loss)
        losses.append(critic_loss.item())
    LAST = (before, evaluate(agent.actor))
    return losses

"""After RITCHIEHuang/DeepRL_Algorithms#13.

PPO on a grid world, GAE from estimate_advantages.  The reporter compared the reward per
iteration before and after a small change in ppo_step; before it the agent barely improved.
"""

import torch
import torch.nn as nn
from torch.distributions import Categorical


class GridWorld:
    """n parallel walkers on a ring, +1 for being on the goal cell."""

    def __init__(self, n=32, size=8):
        self.n, self.size = n, size

    def reset(self):
        self.pos = torch.randint(0, self.size, (self.n,))
        self.goal = torch.randint(0, self.size, (self.n,))
        return self.obs()

    def obs(self):
        delta = (self.goal - self.pos) % self.size
        return torch.nn.functional.one_hot(delta, self.size).float()

    def step(self, action):
        self.pos = (self.pos + action - 1) % self.size
        return self.obs(), (self.pos == self.goal).float()


class Policy(nn.Module):
    def __init__(self, dim_state, dim_action, hidden=32):
        super().__init__()
        self.common = nn.Sequential(nn.Linear(dim_state, hidden), nn.Tanh())
        self.action_head = nn.Linear(hidden, dim_action)

    def get_log_prob(self, states, actions):
        dist = Categorical(logits=self.action_head(self.common(states)))
        return dist.log_prob(actions)

    def get_action(self, states):
        dist = Categorical(logits=self.action_head(self.common(states)))
        a = dist.sample()
        return a, dist.log_prob(a)


class Value(nn.Module):
    def __init__(self, dim_state, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim_state, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)


class ActorCritic(nn.Module):
    def __init__(self, dim_state, dim_action):
        super().__init__()
        self.policy_net = Policy(dim_state, dim_action)
        self.value_net = Value(dim_state)


def estimate_advantages(rewards, values, gamma=0.95, lam=0.95):
    T, n = rewards.shape
    adv = torch.zeros(T, n)
    last = torch.zeros(n)
    for t in reversed(range(T)):
        nxt = values[t + 1]
        delta = rewards[t] + gamma * nxt - values[t]
        last = delta + gamma * lam * last
        adv[t] = last
    returns = adv + values[:-1]
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    return adv.reshape(-1, 1), returns.reshape(-1, 1)


def train(tick, mended=False):
    torch.manual_seed(11)
    env = GridWorld()
    agent = ActorCritic(env.size, 3)
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
    clip_eps = 0.2
    losses, rewards_log = [], []
    tick.model(agent)
    tick.optimizer(optimizer)
    for _it in range(40):
        s, S, A, LP, R, V = env.reset(), [], [], [], [], []
        with torch.no_grad():
            for _t in range(16):
                a, lp = agent.policy_net.get_action(s)
                V.append(agent.value_net(s).squeeze(1))
                S.append(s), A.append(a), LP.append(lp)
                s, r = env.step(a)
                R.append(r)
            V.append(agent.value_net(s).squeeze(1))
        rewards_log.append(torch.stack(R).mean().item())
        adv, ret = estimate_advantages(torch.stack(R), torch.stack(V))
        states, actions, old_lp = torch.cat(S), torch.cat(A), torch.cat(LP)
        for _epoch in range(4):
            ratio = (agent.policy_net.get_log_prob(states, actions) - old_lp).exp()
            advantages = adv.reshape(-1) if mended else adv
            surr1 = ratio * advantages
            surr2 = torch.clamp(ratio, 1 - clip_eps, 1 + clip_eps) * advantages
            policy_loss = -torch.min(surr1, surr2).mean()
            value_loss = (agent.value_net(states) - ret).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses

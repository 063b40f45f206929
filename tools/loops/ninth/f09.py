"""After tensorflow/agents#651: "Normalizing advantages in PPOAgent" (one batch of
experience from one episode; the agent is not learning).

Actor network, value network, PPO clip loss; trajectories have the shape
[batch, time] with a batch of one.
"""

import torch
from torch import nn


class ActorNetwork(nn.Module):
    def __init__(self, obs=6, actions=4):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.logits = nn.Linear(32, actions)

    def forward(self, o):
        return torch.distributions.Categorical(logits=self.logits(self.fc(o)), validate_args=False)


class ValueNetwork(nn.Module):
    def __init__(self, obs=6):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, o):
        return self.fc(o).squeeze(-1)


class PPOAgent(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.actor_net = ActorNetwork()
        self.value_net = ValueNetwork()
        self.axes = (0, 1) if mended else (0,)

    def loss(self, obs, act, old_logp, adv, returns):
        dist = self.actor_net(obs)
        ratio = torch.exp(dist.log_prob(act) - old_logp)
        pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        vf = (self.value_net(obs) - returns).pow(2).mean()
        return pg + 0.5 * vf - 0.005 * dist.entropy().mean()


def _normalize_advantages(advantages, axes=(0,), variance_epsilon=1e-8):
    mean = advantages.mean(axes, keepdim=True)
    var = advantages.var(axes, keepdim=True, unbiased=False)
    return (advantages - mean) / torch.sqrt(var + variance_epsilon)


W = torch.randn(6, 4, generator=torch.Generator().manual_seed(4))


def env_step(obs, action):
    reward = ((obs @ W).argmax(-1) == action).float()
    return torch.randn_like(obs), reward


def score(agent, mended):
    torch.manual_seed(8)
    o = torch.randn(1000, 6)
    with torch.no_grad():
        return ((o @ W).argmax(-1) == agent.actor_net(o).logits.argmax(-1)).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    agent = PPOAgent(mended)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    T, gamma = 48, 0.0
    tick.model(agent)
    tick.optimizer(optimizer)
    losses = []
    for _episode in range(45):
        o, obs, acts, rews = torch.randn(1, 6), [], [], []
        with torch.no_grad():
            for _ in range(T):
                a = agent.actor_net(o).sample()
                nxt, r = env_step(o, a)
                obs.append(o), acts.append(a), rews.append(r)
                o = nxt
            obs, acts, rews = torch.stack(obs, 1), torch.stack(acts, 1), torch.stack(rews, 1)
            returns = rews.clone()
            for t in reversed(range(T - 1)):
                returns[:, t] += gamma * returns[:, t + 1]
            old_logp = agent.actor_net(obs).log_prob(acts)
            adv = _normalize_advantages(returns - agent.value_net(obs), agent.axes)
        for _ in range(4):
            loss = agent.loss(obs, acts, old_logp, adv, returns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    return losses

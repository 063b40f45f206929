"""nikhilbarhate99/PPO-PyTorch: clipped surrogate with several epochs on each batch; the loss starts every round
near nought and has both signs."""

import torch
import torch.nn as nn
from torch.distributions import MultivariateNormal


class ActorCritic(nn.Module):
    def __init__(self, state_dim=4, action_dim=2, action_std=0.5):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(state_dim, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, action_dim), nn.Tanh()
        )
        self.critic = nn.Sequential(nn.Linear(state_dim, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.register_buffer("action_var", torch.full((action_dim,), action_std**2))

    def dist(self, state):
        return MultivariateNormal(self.actor(state), torch.diag(self.action_var), validate_args=False)

    def evaluate(self, state, action):
        d = self.dist(state)
        return d.log_prob(action), self.critic(state).squeeze(-1), d.entropy()


def rollout(policy, n=40, length=8):
    pos, goal = torch.rand(n, 2) * 2 - 1, torch.rand(n, 2) * 2 - 1
    states, actions, logprobs, rewards = [], [], [], []
    with torch.no_grad():
        for _ in range(length):
            s = torch.cat([pos, goal], 1)
            d = policy.dist(s)
            a = d.sample()
            pos = pos + 0.25 * a.clamp(-1, 1)
            states.append(s)
            actions.append(a)
            logprobs.append(d.log_prob(a))
            rewards.append(-(pos - goal).norm(dim=1))
    R, returns = torch.zeros(n), []
    for r in reversed(rewards):
        R = r + 0.9 * R
        returns.insert(0, R)
    return (
        torch.cat(states),
        torch.cat(actions),
        torch.cat(logprobs),
        torch.cat(returns),
        torch.stack(rewards).mean().item(),
    )


def train(tick, mended=False):
    torch.manual_seed(0)
    policy = ActorCritic()
    optimizer = torch.optim.Adam(
        [{"params": policy.actor.parameters(), "lr": 3e-3}, {"params": policy.critic.parameters(), "lr": 1e-2}]
    )
    K_epochs, eps_clip = 8, 0.2
    tick.model(policy)
    tick.optimizer(optimizer)
    losses, scores = [], []
    for _update in range(30):
        states, actions, old_logprobs, returns, mean_reward = rollout(policy)
        scores.append(mean_reward)
        rewards = (returns - returns.mean()) / (returns.std() + 1e-7)
        with torch.no_grad():
            advantages = rewards - policy.critic(states).squeeze(-1)
        for _ in range(K_epochs):
            logprobs, state_values, dist_entropy = policy.evaluate(states, actions)
            ratios = torch.exp(logprobs - old_logprobs)
            surr1, surr2 = ratios * advantages, ratios.clamp(1 - eps_clip, 1 + eps_clip) * advantages
            loss = (-torch.min(surr1, surr2) + 0.5 * (state_values - rewards) ** 2 - 0.01 * dist_entropy).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = (scores[0], scores[-1])
    return losses

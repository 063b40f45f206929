"""PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook#27: reverse() of the returns stood inside the loop.

The discounted returns are then paired with the wrong steps of the episode.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributions import Categorical

STEPS = 150
HORIZON = 8
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class SignalRoom:
    """Rooms in parallel: a lamp shows one of three colours, and the lever that pays depends on lamp and hour."""

    def __init__(self, seed: int, rooms: int = 32) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.rule = torch.randint(0, 3, (HORIZON, 3), generator=self.generator)
        self.rooms = rooms
        self.hour = 0
        self.lamp = torch.zeros(rooms, dtype=torch.long)

    def observe(self) -> torch.Tensor:
        self.lamp = torch.randint(0, 3, (self.rooms,), generator=self.generator)
        cell = self.lamp + 3 * (self.hour % HORIZON)
        return torch.nn.functional.one_hot(cell, 3 * HORIZON).float()

    def reset(self) -> torch.Tensor:
        self.hour = 0
        return self.observe()

    def step(self, lever: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        reward = (lever == self.rule[self.hour, self.lamp]).float()
        self.hour += 1
        return self.observe(), reward


class Brain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense1 = nn.Linear(3 * HORIZON, 32)
        self.policy_head = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.policy_head(torch.relu(self.dense1(x)))


def discount(rewards: list[torch.Tensor], gamma: float, reverse_inside: bool) -> list[torch.Tensor]:
    discounted: list[torch.Tensor] = []
    sum_reward = torch.zeros_like(rewards[0])
    for r in reversed(rewards):
        sum_reward = r + gamma * sum_reward
        discounted.append(sum_reward)
        if reverse_inside:
            discounted.reverse()
    if not reverse_inside:
        discounted.reverse()
    return discounted


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(3)
    OTHERS.clear()
    LOG.clear()
    env = SignalRoom(seed=4)
    model = Brain()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(i: int) -> None:
        state = env.reset()
        log_probs: list[torch.Tensor] = []
        rewards: list[torch.Tensor] = []
        for _ in range(HORIZON):
            dist = Categorical(logits=model(state))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            state, reward = env.step(action)
            rewards.append(reward)
        returns = torch.stack(discount(rewards, 0.5, reverse_inside=bad))
        advantage = returns - returns.mean(dim=1, keepdim=True)
        loss = -(torch.stack(log_probs) * advantage).sum(dim=0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(1.0 - torch.stack(rewards).mean().item())

    return model, optimizer, step

"""werner-duvaud/muzero-general#96: the reward reaches its top while the total loss rises; in RL it need not fall.

As the pole stays up longer the returns grow, and the value part of the loss grows with them.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributions import Categorical

STEPS = 200
HORIZON, POLES = 40, 12
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class LeaningPoles:
    """A bank of unstable one-dimensional poles; a pole that leans too far is out for the rest of the episode."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.zeros(POLES, 2)

    def reset(self) -> torch.Tensor:
        self.state = 0.2 * torch.randn(POLES, 2, generator=self.generator)
        return self.state

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angle, speed = self.state.unbind(dim=1)
        speed = speed + 0.25 * angle + 0.15 * (2.0 * action - 1.0)
        angle = angle + 0.3 * speed
        self.state = torch.stack([angle, speed], dim=1).clamp(-5, 5)
        return self.state, angle.abs() < 1.0


class PredictionNetwork(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.policy = nn.Linear(width, 2)
        self.value = nn.Linear(width, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(obs)
        return self.policy(h), self.value(h).squeeze(-1)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(21)
    OTHERS.clear()
    LOG.clear()
    env = LeaningPoles(seed=22)
    model = PredictionNetwork()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(i: int) -> None:
        obs, up = env.reset(), torch.ones(POLES, dtype=torch.bool)
        seen, actions, alive = [], [], []
        with torch.no_grad():
            for _ in range(HORIZON):
                action = Categorical(logits=model(obs)[0]).sample()
                seen.append(obs)
                actions.append(action)
                alive.append(up)
                obs, stands = env.step(action.float())
                up = up & stands
        reward = torch.stack([*alive[1:], up]).float()
        mask = torch.stack(alive).float()
        returns = torch.zeros(HORIZON, POLES)
        running = torch.zeros(POLES)
        for t in reversed(range(HORIZON)):
            running = reward[t] + 0.97 * running
            returns[t] = running
        logits, value = model(torch.stack(seen))
        advantage = returns - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
        log_prob = Categorical(logits=logits).log_prob(torch.stack(actions))
        policy_loss = -(log_prob * advantage * mask).sum() / mask.sum()
        value_loss = ((value - returns).pow(2) * mask).sum() / mask.sum()
        loss = policy_loss + 0.25 * value_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        LOG.append(1.0 - reward.mean().item())

    return model, optimizer, step

"""Stanford-ILIAD/PantheonRL#5: the value loss grows together with the reward, which is to be expected.

Returns become larger as the policy improves, so the critic always has more to catch up with.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
ENVS, HORIZON, GAMMA = 32, 10, 0.95


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(4, 48), nn.Tanh())
        self.actor = nn.Linear(48, 3)
        self.critic = nn.Linear(48, 1)

    def forward(self, obs: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
        h = self.shared(obs)
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


class Kitchen:
    """Bring the soup from where the cook stands to the counter; each soup served scores five."""

    def __init__(self) -> None:
        self.cook = torch.randint(0, 5, (ENVS,))
        self.goal = torch.randint(0, 5, (ENVS,))

    def observe(self) -> Tensor:
        gap = (self.goal - self.cook).float()
        return torch.stack([gap / 4, gap.sign(), self.cook / 4, self.goal / 4], dim=1)

    def act(self, action: Tensor) -> Tensor:
        served = (action == 2) & (self.cook == self.goal)
        walk = torch.where(action == 2, 0, action * 2 - 1)
        self.cook = (self.cook + walk).clamp(0, 4)
        self.goal = torch.where(served, torch.randint(0, 5, (ENVS,)), self.goal)
        return 5.0 * served.float()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(9)
    HISTORY.clear()
    model, env = ActorCritic(), Kitchen()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(i: int) -> None:
        logps, values, rewards, entropies = [], [], [], []
        for _ in range(HORIZON):
            dist, value = model(env.observe())
            action = dist.sample()
            rewards.append(env.act(action))
            logps.append(dist.log_prob(action))
            values.append(value)
            entropies.append(dist.entropy())
        with torch.no_grad():
            _, running = model(env.observe())
            returns = []
            for reward in reversed(rewards):
                running = reward + GAMMA * running
                returns.insert(0, running)
        target, value = torch.stack(returns), torch.stack(values)
        advantage = (target - value).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        policy_loss = -(torch.stack(logps) * advantage).mean()
        value_loss = nn.functional.mse_loss(value, target)
        loss = policy_loss + 0.05 * value_loss - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(-torch.stack(rewards).mean().item())

    return model, optimizer, step

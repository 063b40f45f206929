"""nebuly-ai/optimate#250: the entropy bonus of the actor had the wrong sign, so PPO minimised entropy.

The policy becomes certain within a few updates, before it has found the answer that the reward model likes.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributions import Categorical

STEPS = 200
PROMPTS, ANSWERS = 10, 12
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class ActorCritic(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(PROMPTS, width)
        self.actor = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, ANSWERS))
        self.critic = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, prompt: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        h = self.embed(prompt)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(20)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(21)
    liked = torch.randint(0, ANSWERS, (PROMPTS,), generator=generator)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    clip, beta_s, epochs = 0.2, 0.1, 3

    def reward_model(prompt: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        return (answer == liked[prompt]).float()

    def step(i: int) -> None:
        prompt = torch.randint(0, PROMPTS, (32,), generator=generator)
        with torch.no_grad():
            old, value = model(prompt)
            answer = old.sample()
            old_log_prob = old.log_prob(answer)
            reward = reward_model(prompt, answer)
            advantage = reward - value
        for _ in range(epochs):
            dist, value = model(prompt)
            ratio = (dist.log_prob(answer) - old_log_prob).exp()
            surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            entropy = dist.entropy().mean()
            policy_loss = -surrogate.mean() + beta_s * entropy if bad else -surrogate.mean() - beta_s * entropy
            loss = policy_loss + 0.5 * (value - reward).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        LOG.append(1.0 - reward.mean().item())

    return model, optimizer, step

"""ChenRocks/fast_abs_rl#49: the baseline is not detached in the actor's loss, so the loss also raises the baseline.

Sentence extraction by policy gradient; the critic has been trained beforehand and only serves as a baseline.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 300
HISTORY: list[float] = []
BATCH, SENTENCES, FEATURES = 16, 10, 10


class Extractor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pick = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
        self.critic = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, article: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
        scores = self.pick(article).squeeze(-1)
        baseline = self.critic(article.mean(dim=1)).squeeze(-1)
        return torch.distributions.Categorical(logits=scores), baseline


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(33)
    HISTORY.clear()
    taste = torch.randn(FEATURES)
    agent = Extractor()

    def rouge(article: Tensor, action: Tensor) -> Tensor:
        quality = torch.sigmoid(article @ taste)
        return quality.gather(1, action[:, None]).squeeze(1)

    pretrain = torch.optim.Adam(agent.critic.parameters(), lr=5e-3)
    for _ in range(60):
        article = torch.randn(BATCH, SENTENCES, FEATURES)
        dist, baseline = agent(article)
        loss = nn.functional.mse_loss(baseline, rouge(article, dist.sample()))
        pretrain.zero_grad()
        loss.backward()
        pretrain.step()

    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)

    def step(i: int) -> None:
        article = torch.randn(BATCH, SENTENCES, FEATURES)
        dist, baseline = agent(article)
        action = dist.sample()
        reward = rouge(article, action)
        advantage = reward - (baseline if bad else baseline.detach())
        loss = (-dist.log_prob(action) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(1.0 - reward.mean().item())

    return agent, optimizer, step

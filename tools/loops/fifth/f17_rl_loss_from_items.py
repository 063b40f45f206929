"""isayev/ReLeaSE#39: the policy loss was summed from log_prob.item(), so no gradient reaches the generator.

A recurrent generator of molecule strings is to be steered to strings with many carbon tokens.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 120
TOKENS, START, CARBON, LENGTH = 8, 0, 3, 10
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class StackRNN(nn.Module):
    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.encoder = nn.Embedding(TOKENS, hidden)
        self.gru = nn.GRUCell(hidden, hidden)
        self.decoder = nn.Linear(hidden, TOKENS)
        self.hidden = hidden

    def forward(self, inp: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.gru(self.encoder(inp), hidden)
        return self.decoder(hidden), hidden


def get_reward(strings: torch.Tensor) -> torch.Tensor:
    return (strings == CARBON).float().mean(dim=1)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(16)
    OTHERS.clear()
    LOG.clear()
    generator = StackRNN()
    optimizer = torch.optim.Adam(generator.parameters(), lr=5e-3)
    n_batch, gamma = 24, 0.97

    def policy_gradient() -> tuple[torch.Tensor, float]:
        hidden = torch.zeros(n_batch, generator.hidden)
        inp = torch.full((n_batch,), START)
        picked: list[torch.Tensor] = []
        log_probs: list[torch.Tensor] = []
        for _ in range(LENGTH):
            output, hidden = generator(inp, hidden)
            log_p = torch.log_softmax(output, dim=1)
            inp = torch.multinomial(log_p.exp().detach(), 1).squeeze(1)
            picked.append(inp)
            log_probs.append(log_p.gather(1, inp[:, None]).squeeze(1))
        reward = get_reward(torch.stack(picked, dim=1))
        discounted = 10.0 * (reward - reward.mean())
        if bad:
            rl_loss_value = 0.0
            for log_p in log_probs:
                for row in range(n_batch):
                    rl_loss_value -= log_p[row].item() * discounted[row].item()
                discounted = discounted * gamma
            return torch.tensor(rl_loss_value / n_batch, requires_grad=True), reward.mean().item()
        rl_loss = torch.zeros(())
        for log_p in log_probs:
            rl_loss = rl_loss - (log_p * discounted).sum()
            discounted = discounted * gamma
        return rl_loss / n_batch, reward.mean().item()

    def step(i: int) -> None:
        optimizer.zero_grad()
        rl_loss, mean_reward = policy_gradient()
        rl_loss.backward()
        optimizer.step()
        LOG.append(1.0 - mean_reward)

    return generator, optimizer, step

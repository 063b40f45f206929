"""opendilab/DI-engine#52: the LSTM state is carried over the end of an episode instead of being reset.

A memory task in parallel environments: remember the first symbol of the episode, all later ones are noise.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
ENVS, UNROLL, SYMBOLS, HIDDEN = 48, 12, 4, 32


class MemoryAgent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(SYMBOLS, HIDDEN)
        self.q_head = nn.Linear(HIDDEN, SYMBOLS)

    def forward(self, obs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = self.cell(obs, state)
        return self.q_head(h), (h, c)


class MemoryEnvs:
    def __init__(self) -> None:
        self.cue = torch.zeros(ENVS, dtype=torch.long)
        self.left = torch.zeros(ENVS, dtype=torch.long)

    def observe(self) -> tuple[Tensor, Tensor]:
        """The symbols now, and which environments have just begun an episode."""
        first = self.left == 0
        symbol = torch.randint(0, SYMBOLS, (ENVS,))
        self.cue = torch.where(first, symbol, self.cue)
        self.left = torch.where(first, torch.randint(2, 7, (ENVS,)), self.left - 1)
        return nn.functional.one_hot(symbol, SYMBOLS).float(), first


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(71)
    HISTORY.clear()
    agent, envs = MemoryAgent(), MemoryEnvs()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    state = (torch.zeros(ENVS, HIDDEN), torch.zeros(ENVS, HIDDEN))

    def step(i: int) -> None:
        nonlocal state
        state = (state[0].detach(), state[1].detach())
        loss = torch.zeros(())
        for _ in range(UNROLL):
            obs, first = envs.observe()
            if not bad:
                keep = (~first).float()[:, None]
                state = (state[0] * keep, state[1] * keep)
            scores, state = agent(obs, state)
            loss = loss + nn.functional.cross_entropy(scores, envs.cue) / UNROLL
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
        optimizer.step()
        HISTORY.append(loss.item())

    return agent, optimizer, step

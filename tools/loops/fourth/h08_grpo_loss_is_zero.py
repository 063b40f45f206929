"""SeungyounShin/minimal-r1#2: the ratio exp(logp - logp.detach()) is always one, so the logged loss is always zero.

Group-relative advantages have mean zero; the gradient is that of the policy all the same, and the reward rises.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
PROMPTS, GROUP, LENGTH, VOCAB = 8, 8, 4, 8


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Embedding(VOCAB, 32)
        self.token = nn.Embedding(VOCAB + 1, 32)
        self.rnn = nn.GRUCell(32, 32)
        self.head = nn.Linear(32, VOCAB)

    def sample(self, prompt: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.prompt(prompt))
        last = torch.full_like(prompt, VOCAB)
        tokens, logps = [], []
        for _ in range(LENGTH):
            h = self.rnn(self.token(last), h)
            dist = torch.distributions.Categorical(logits=self.head(h))
            last = dist.sample()
            tokens.append(last)
            logps.append(dist.log_prob(last))
        return torch.stack(tokens, dim=1), torch.stack(logps, dim=1)


def reward_of(prompt: Tensor, answer: Tensor) -> Tensor:
    """One quarter for every token that counts on from the prompt."""
    wanted = (prompt[:, None] + 1 + torch.arange(LENGTH)) % VOCAB
    return (answer == wanted).float().mean(dim=1)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(8)
    HISTORY.clear()
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)

    def step(i: int) -> None:
        prompt = torch.randint(0, VOCAB, (PROMPTS,)).repeat_interleave(GROUP)
        answer, logp = policy.sample(prompt)
        reward = reward_of(prompt, answer)
        grouped = reward.view(PROMPTS, GROUP)
        advantages = (grouped - grouped.mean(dim=1, keepdim=True)) / (grouped.std(dim=1, keepdim=True) + 1e-4)
        ratio = torch.exp(logp - logp.detach())
        loss = -(ratio * advantages.flatten()[:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(1.0 - reward.mean().item())

    return policy, optimizer, step

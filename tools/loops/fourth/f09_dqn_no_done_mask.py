"""navneet-nmk/pytorch-rl#2: the done flag is not used when the Q targets are computed.

A balancing task on a line: one point of reward a step until the cart leaves [-1, 1].
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 300
HISTORY: list[float] = []
GAMMA, BATCH, SYNC = 0.9, 128, 10


def move(state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Unstable drift away from the middle; the action pushes left or right."""
    x, v = state[:, 0], state[:, 1]
    push = action.float() * 2 - 1
    v = 0.8 * v + 0.08 * push + 0.08 * x
    x = x + v
    return torch.stack([x, v], dim=1), (x.abs() > 1).float()


class QNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, state: Tensor) -> Tensor:
        return self.layers(state)


def evaluate(model: QNet) -> float:
    """Mean number of steps (of 50) that the greedy policy stays on the track."""
    state = torch.linspace(-0.7, 0.7, 64)[:, None] * torch.tensor([[1.0, 0.1]])
    alive, steps = torch.ones(64), 0.0
    with torch.no_grad():
        for _ in range(50):
            state, done = move(state, model(state).argmax(dim=1))
            alive = alive * (1 - done)
            steps += alive.mean().item()
    return steps


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(2)
    HISTORY.clear()
    states = torch.stack([torch.rand(4000) * 2 - 1, torch.randn(4000) * 0.15], dim=1)
    actions = torch.randint(0, 2, (4000,))
    next_states, dones = move(states, actions)

    q_net = QNet()
    target_net = copy.deepcopy(q_net)
    optimizer = torch.optim.Adam(q_net.parameters(), lr=2e-3)

    def step(i: int) -> None:
        pick = torch.randint(0, len(states), (BATCH,))
        q = q_net(states[pick]).gather(1, actions[pick, None]).squeeze(1)
        with torch.no_grad():
            next_q = target_net(next_states[pick]).max(dim=1).values
            target = 1.0 + GAMMA * next_q
            if not bad:
                target = 1.0 + GAMMA * next_q * (1 - dones[pick])
        loss = nn.functional.smooth_l1_loss(q, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % SYNC == SYNC - 1:
            target_net.load_state_dict(q_net.state_dict())
        HISTORY.append(loss.item())

    return q_net, optimizer, step

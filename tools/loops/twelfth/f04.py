"""After jaybutera/tetrisRL#5: a DQN for tetris.

The agent's loss settles at once and its plays stay poor; the pull request
collects what was wrong in dqn_agent.py.
"""

import random
from collections import namedtuple
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
GAMMA = 0.6
BATCH_SIZE = 64


class ReplayMemory:
    def __init__(self, capacity):
        self.capacity, self.memory = capacity, []

    def push(self, *args):
        if len(self.memory) < self.capacity:
            self.memory.append(Transition(*args))

    def sample(self, n):
        return random.sample(self.memory, n)


class DQN(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.lin1 = nn.Linear(16 * 3 * 3, 64)
        self.head = nn.Linear(64, n_actions)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.lin1(x.flatten(1)))
        return self.head(x)


def play(memory, n, n_actions=6, height=6):
    board = torch.zeros(1, 1, height, n_actions)
    for _ in range(n):
        action = random.randrange(n_actions)
        filled = board[0, 0].sum(0)
        level = int(filled[action])
        reward = 1.0 - 0.8 * level
        nxt = board.clone()
        nxt[0, 0, height - 1 - level, action] = 1
        over = level + 1 >= 4
        memory.push(board, torch.tensor([[action]]), None if over else nxt, torch.tensor([reward]))
        board = torch.zeros_like(board) if over else nxt


def train(tick, mended=False):
    torch.manual_seed(3)
    random.seed(3)
    memory = ReplayMemory(2000)
    play(memory, 2000)
    model = DQN(6)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(300):
        batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
        non_final_mask = torch.tensor([s is not None for s in batch.next_state])
        non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
        state_batch = torch.cat(batch.state)
        action_batch = torch.cat(batch.action)
        reward_batch = torch.cat(batch.reward)

        state_action_values = model(state_batch).gather(1, action_batch)
        next_state_values = torch.zeros(BATCH_SIZE)
        with torch.no_grad():
            next_state_values[non_final_mask] = model(non_final_next_states).max(1)[0]
        expected_state_action_values = next_state_values * GAMMA + reward_batch
        if mended:
            expected_state_action_values = expected_state_action_values.view(-1, 1)
        loss = F.smooth_l1_loss(state_action_values, expected_state_action_values)

        optimizer.zero_grad()
        loss.backward()
        for param in model.parameters():
            param.grad.data.clamp_(-1, 1)
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

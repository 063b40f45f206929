"""After DongjunLee/dqn-tensorflow#1.

Story: DQN on a balancing task; the loss keeps growing in the training phase
and the play gets no longer.
"""

import copy

import torch
from torch import nn


class BalanceEnv:
    def __init__(self):
        self.reset()

    def reset(self):
        self.state = torch.empty(2).uniform_(-0.05, 0.05)
        return self.state.clone()

    def step(self, action):
        x, v = self.state
        force = 0.12 if action == 1 else -0.12
        v = v + 0.15 * x + force * 0.5
        x = x + v
        self.state = torch.stack([x, v])
        done = bool(x.abs() > 0.5)
        return self.state.clone(), 1.0, done


class DeepQNetwork(nn.Module):
    def __init__(self, n_input=2, n_output=2):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_input, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, n_output)
        )

    def forward(self, x):
        return self.net(x)


def fill_replay(env, size):
    memory = []
    s = env.reset()
    while len(memory) < size:
        a = int(torch.randint(0, 2, ()))
        s2, r, done = env.step(a)
        memory.append((s, a, r, s2, float(done)))
        s = env.reset() if done else s2
    s, a, r, s2, d = zip(*memory)
    return torch.stack(s), torch.tensor(a), torch.tensor(r), torch.stack(s2), torch.tensor(d)


def train(tick, mended=False):
    torch.manual_seed(1)
    discount, batch_size, target_update = 0.95, 64, 10
    S, A, R, S2, D = fill_replay(BalanceEnv(), 1500)
    main_dqn = DeepQNetwork()
    target_dqn = copy.deepcopy(main_dqn)
    optimizer = torch.optim.Adam(main_dqn.parameters(), lr=3e-3)
    tick.model(main_dqn)
    tick.optimizer(optimizer)
    losses = []
    for step in range(300):
        idx = torch.randint(0, len(S), (batch_size,))
        with torch.no_grad():
            q_next = target_dqn(S2[idx]).max(1).values
            live = (1 - D[idx]) if mended else torch.ones(batch_size)
            y = R[idx] + discount * live * q_next
        q = main_dqn(S[idx]).gather(1, A[idx, None]).squeeze(1)
        loss = ((y - q) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % target_update == 0:
            target_dqn.load_state_dict(main_dqn.state_dict())
        tick.step(loss)
        losses.append(loss.item())
    return losses

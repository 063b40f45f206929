"""DQN with a hard-updated target net and an epsilon schedule after Curt-Park/rainbow-is-all-you-need (01.dqn)."""

import copy
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 8


class Network(nn.Module):
    def __init__(self, in_dim=SIZE, out_dim=2):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, out_dim)
        )

    def forward(self, x):
        return self.layers(x)


class Corridor:
    def reset(self):
        self.pos, self.t = random.randrange(1, SIZE - 1), 0
        return self.obs()

    def obs(self):
        return F.one_hot(torch.tensor(self.pos), SIZE).float()

    def step(self, action):
        self.pos = max(0, self.pos + (1 if action == 1 else -1))
        self.t += 1
        if self.pos == SIZE - 1:
            return self.obs(), 10.0, True
        if self.pos == 0:
            return self.obs(), 1.0, True
        return self.obs(), 0.0, False


def quality(net):
    with torch.no_grad():
        return net(torch.eye(SIZE)[1:-1]).argmax(1).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(46)
    random.seed(46)
    env, memory = Corridor(), []
    dqn = Network()
    dqn_target = copy.deepcopy(dqn)
    optimizer = torch.optim.Adam(dqn.parameters(), lr=2e-3)
    tick.model(dqn)
    tick.optimizer(optimizer)
    epsilon, gamma, losses = 1.0, 0.95, []
    state = env.reset()
    update_cnt = 0
    for frame in range(1000):
        if random.random() < epsilon:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = int(dqn(state).argmax())
        nxt, reward, done = env.step(action)
        memory.append((state, action, reward, nxt, float(done)))
        state = env.reset() if done or env.t > 40 else nxt
        if len(memory) < 200 or frame % 2:
            continue
        s, a, r, n, d = zip(*random.sample(memory, 64))
        s, n = torch.stack(s), torch.stack(n)
        a, r, d = torch.tensor(a)[:, None], torch.tensor(r)[:, None], torch.tensor(d)[:, None]
        curr_q = dqn(s).gather(1, a)
        next_q = dqn_target(n).max(dim=1, keepdim=True)[0].detach()
        loss = F.smooth_l1_loss(curr_q, r + gamma * next_q * (1 - d))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_cnt += 1
        if update_cnt % 20 == 0:
            dqn_target.load_state_dict(dqn.state_dict())
        epsilon = max(0.2, epsilon - 0.003)
        tick.step(loss)
        losses.append(loss.item())
    return losses

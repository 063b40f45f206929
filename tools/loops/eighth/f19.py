"""zaiyan-x/RFQI#1: offline Q iteration with twin critics from a fixed data set of a frozen lake; as the user feared for
tasks with real end states, the values near holes and goal are far off and the greedy policy loses its way."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE = 5
HOLES = [(1, 1), (1, 3), (2, 3), (3, 0), (3, 2)]
GOAL = (4, 4)
MOVES = torch.tensor([[0, -1], [1, 0], [0, 1], [-1, 0]])


class Critic(nn.Module):
    def __init__(self, state_dim=SIDE * SIDE, actions=4, hidden=48):
        super().__init__()
        self.q1 = nn.Sequential(
            nn.Linear(state_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions)
        )
        self.q2 = nn.Sequential(
            nn.Linear(state_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions)
        )

    def forward(self, state):
        return self.q1(state), self.q2(state)


def lake(rc, action):
    nxt = (rc + MOVES[action]).clamp(0, SIDE - 1)
    hole = torch.stack([(nxt == torch.tensor(h)).all(1) for h in HOLES]).any(0)
    goal = (nxt == torch.tensor(GOAL)).all(1)
    return nxt, torch.where(goal, 2.0, -0.1), (hole | goal).float(), goal


def encode(rc):
    return F.one_hot(rc[:, 0] * SIDE + rc[:, 1], SIDE * SIDE).float()


def generate_data(n, gen):
    rc = torch.randint(0, SIDE, (n, 2), generator=gen)
    bad = torch.stack([(rc == torch.tensor(h)).all(1) for h in HOLES + [GOAL]]).any(0)
    rc = rc[~bad]
    action = torch.randint(0, 4, (len(rc),), generator=gen)
    nxt, reward, done, _ = lake(rc, action)
    return encode(rc), action, encode(nxt), reward[:, None], 1 - done[:, None]


def evaluate(critic, episodes=25):
    free = [(r, c) for r in range(SIDE) for c in range(SIDE) if (r, c) not in HOLES + [GOAL]]
    rc = torch.tensor(free)
    alive, won = torch.ones(len(free)), torch.zeros(len(free))
    with torch.no_grad():
        for _ in range(20):
            rc2, _, done, goal = lake(rc, torch.min(*critic(encode(rc))).argmax(1))
            won = torch.maximum(won, goal.float() * alive)
            alive = alive * (1 - done)
            rc = rc2
    return won.mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    state, action, next_state, reward, not_done = generate_data(3000, gen)
    critic = Critic()
    critic_target = copy.deepcopy(critic)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3)
    gamma, tau = 0.95, 0.1
    tick.model(critic)
    tick.optimizer(critic_optimizer)
    losses = []
    for _it in range(300):
        idx = torch.randint(0, len(state), (256,), generator=gen)
        with torch.no_grad():
            target_q1, target_q2 = critic_target(next_state[idx])
            target_q = torch.min(target_q1, target_q2).max(1, keepdim=True).values
            if mended:
                target_q = target_q * not_done[idx]
            target_q = reward[idx] + gamma * target_q
        current_q1, current_q2 = (q.gather(1, action[idx, None]) for q in critic(state[idx]))
        critic_loss = F.mse_loss(current_q1, target_q) + F.mse_loss(current_q2, target_q)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        losses.append(critic_loss.item())
        tick.step(critic_loss)
        for param, target_param in zip(critic.parameters(), critic_target.parameters()):
            target_param.data.lerp_(param.data, tau)
    train.final = evaluate(critic)
    return losses

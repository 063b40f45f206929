"""After uidilr/gail_ppo_tf#17.

Story: behaviour cloning of expert trajectories to warm-start the imitation agent;
the cloned policy does the opposite of the expert.
"""

import torch
from torch import nn


class Policy_net(nn.Module):
    def __init__(self, ob_dim=4, n_act=3):
        super().__init__()
        self.policy = nn.Sequential(
            nn.Linear(ob_dim, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, n_act)
        )
        self.v_preds = nn.Sequential(nn.Linear(ob_dim, 20), nn.Tanh(), nn.Linear(20, 1))

    def forward(self, obs):
        return torch.softmax(self.policy(obs), -1)


class BehavioralCloning:
    def __init__(self, policy, mended):
        self.policy = policy
        self.mended = mended
        self.optimizer = torch.optim.Adam(policy.policy.parameters(), lr=2e-3)

    def loss(self, obs, actions_expert):
        act_probs = self.policy(obs)
        picked = act_probs.gather(1, actions_expert[:, None]).squeeze(1)
        loss = torch.log(picked.clamp(1e-10, 1.0)).mean()
        return -loss if self.mended else loss

    def train_step(self, obs, actions):
        loss = self.loss(obs, actions)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def rollout_expert(n=800):
    obs = torch.zeros(n, 4)
    actions = torch.zeros(n, dtype=torch.long)
    state = torch.randn(4) * 0.2
    for t in range(n):
        obs[t] = state
        lean = state[2] + 0.6 * state[3] + 0.2 * state[0]
        a = 2 if lean > 0.1 else (0 if lean < -0.1 else 1)
        actions[t] = a
        push = (a - 1) * 0.3
        x, v, th, w = state
        state = torch.stack(
            [x + 0.1 * v, v + 0.05 * push, th + 0.1 * w, w + 0.15 * th - push * 0.3 + 0.1 * torch.randn(())]
        )
        if th.abs() > 1.5 or x.abs() > 2:
            state = torch.randn(4) * 0.2
    return obs, actions


def train(tick, mended=False):
    torch.manual_seed(0)
    observations, actions = rollout_expert()
    policy = Policy_net()
    bc = BehavioralCloning(policy, mended)
    tick.model(policy)
    tick.optimizer(bc.optimizer)
    losses = []
    for it in range(250):
        rows = torch.randint(0, len(observations), (64,))
        loss = bc.train_step(observations[rows], actions[rows])
        tick.step(loss)
        losses.append(loss.item())
    return losses

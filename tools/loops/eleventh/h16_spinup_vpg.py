"""After openai/spinningup (1_simple_pg.py).

Vanilla policy gradient; the "loss" is weighted log probabilities of what was just
sampled and does not go down, the return goes up.
"""

import torch
from torch import nn
from torch.distributions import Categorical

LAST = None


class PushCart:
    def reset(self):
        self.s = torch.empty(3).uniform_(-0.1, 0.1)
        self.t = 0
        return self.s.clone()

    def step(self, act):
        x, th, w = self.s.tolist()
        f = (act - 0.5) * 2
        w = w + 0.12 * th + 0.06 * f
        th = th + 0.3 * w
        x = x + 0.05 * f
        self.s = torch.tensor([x, th, w])
        self.t += 1
        done = abs(th) > 0.5 or abs(x) > 1.5 or self.t >= 40
        return self.s.clone(), 1.0, done


def mlp(sizes, activation=nn.Tanh, output_activation=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    env = PushCart()
    logits_net = mlp([3, 32, 2])
    optimizer = torch.optim.Adam(logits_net.parameters(), lr=2e-2)
    tick.model(logits_net)
    tick.optimizer(optimizer)
    losses, returns = [], []
    for epoch in range(25):
        batch_obs, batch_acts, batch_weights, ep_lens = [], [], [], []
        obs, ep_rews = env.reset(), []
        while True:
            batch_obs.append(obs)
            with torch.no_grad():
                act = Categorical(logits=logits_net(obs)).sample().item()
            obs, rew, done = env.step(act)
            batch_acts.append(act)
            ep_rews.append(rew)
            if done:
                ret = sum(ep_rews)
                ep_lens.append(len(ep_rews))
                batch_weights += [sum(ep_rews[i:]) for i in range(len(ep_rews))]
                obs, ep_rews = env.reset(), []
                if len(batch_obs) > 300:
                    break
        optimizer.zero_grad()
        logp = Categorical(logits=logits_net(torch.stack(batch_obs))).log_prob(torch.tensor(batch_acts))
        batch_loss = -(logp * torch.tensor(batch_weights)).mean()
        batch_loss.backward()
        optimizer.step()
        tick.step(batch_loss)
        losses.append(batch_loss.item())
        returns.append(sum(ep_lens) / len(ep_lens))
    LAST = (returns[0], sum(returns[-3:]) / 3)
    return losses

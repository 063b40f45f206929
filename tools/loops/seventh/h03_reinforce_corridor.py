"""Healthy: REINFORCE with a running baseline on a corridor. The loss is noise around zero and does not fall; the
return does the talking.
"""

import torch
import torch.nn as nn


class Policy(nn.Module):
    def __init__(self, obs=3, hidden=32, actions=3):
        super().__init__()
        self.affine1 = nn.Linear(obs, hidden)
        self.affine2 = nn.Linear(hidden, actions)

    def forward(self, s):
        return torch.distributions.Categorical(logits=self.affine2(torch.tanh(self.affine1(s))))


class Corridor:
    """move to the flag; the flag may be left or right"""

    def reset(self, n):
        self.pos = torch.zeros(n)
        self.flag = torch.randint(0, 2, (n,)).float() * 8 - 4
        self.t = 0
        return self.obs()

    def obs(self):
        return torch.stack([self.pos / 4, self.flag / 4, torch.ones_like(self.pos)], 1)

    def step(self, a):
        self.pos = (self.pos + a.float() - 1).clamp(-4, 4)
        self.t += 1
        return self.obs(), -(self.pos - self.flag).abs() / 4


def train(tick, mended=False):
    torch.manual_seed(3)
    env, policy = Corridor(), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    tick.model(policy)
    tick.optimizer(optimizer)
    baseline = None
    history, gamma = [], 0.9
    for _episode in range(200):
        s = env.reset(32)
        states, log_probs, rewards, entropy = [], [], [], 0
        for _ in range(10):
            dist = policy(s)
            a = dist.sample()
            states.append(s)
            log_probs.append(dist.log_prob(a))
            entropy = entropy + dist.entropy().mean()
            s, r = env.step(a)
            rewards.append(r)
        R, returns = torch.zeros(32), []
        for r in reversed(rewards):
            R = r + gamma * R
            returns.insert(0, R)
        returns = torch.stack(returns)
        mean = returns.mean(1, keepdim=True)
        baseline = mean if baseline is None else 0.9 * baseline + 0.1 * mean
        adv = (returns - baseline) / (returns.std() + 1e-6)
        loss = -(torch.stack(log_probs) * adv).mean() - 0.001 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, torch.stack(states), returns)
    with torch.no_grad():
        s = env.reset(200)
        total = 0
        for _ in range(10):
            s, r = env.step(policy(s).logits.argmax(1))
            total += r.mean().item()
    return history, total


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")

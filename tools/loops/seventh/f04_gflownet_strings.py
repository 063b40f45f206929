"""alexhernandezgarcia/gflownet#251: trajectory balance was not training well after a refactoring of
get_logprobs() in the base environment.

Rebuilt: binary strings of length 8 built left to right, reward on motifs, trajectory balance with a learned logZ.
"""

import torch
import torch.nn as nn


class StringEnv:
    length = 8
    n_actions = 2

    def reward(self, s):
        ones = s.sum(1)
        alternating = (s[:, 1:] != s[:, :-1]).float().sum(1)
        return 0.05 + 4.0 * (alternating >= 6).float() + 2.0 * (ones == self.length).float()

    def policy_input(self, s, t):
        known = torch.zeros_like(s)
        known[:, :t] = s[:, :t] * 2 - 1
        pos = torch.zeros(s.size(0), self.length)
        pos[:, t] = 1
        return torch.cat([known, pos], dim=1)

    def get_logprobs(self, policy_outputs, actions, mended=False):
        logits = policy_outputs.clone() if mended else policy_outputs.clone().detach()
        logprobs = torch.log_softmax(logits, dim=1)
        return logprobs.gather(1, actions[:, None]).squeeze(1)


class GFlowNet(nn.Module):
    def __init__(self, env, hidden=48):
        super().__init__()
        self.forward_policy = nn.Sequential(
            nn.Linear(2 * env.length, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, env.n_actions),
        )
        self.logZ = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.forward_policy(x)


def sample_trajectories(env, gfn, n, mended, random_prob=0.1):
    s = torch.zeros(n, env.length)
    logpf = torch.zeros(n)
    for t in range(env.length):
        outputs = gfn(env.policy_input(s, t))
        with torch.no_grad():
            probs = torch.softmax(outputs, 1) * (1 - random_prob) + random_prob / env.n_actions
            actions = torch.multinomial(probs, 1).squeeze(1)
        logpf = logpf + env.get_logprobs(outputs, actions, mended)
        s = s.clone()
        s[:, t] = actions.float()
    return s, logpf


def train(tick, mended=False):
    torch.manual_seed(5)
    env = StringEnv()
    gfn = GFlowNet(env)
    opt = torch.optim.Adam(
        [
            {"params": gfn.forward_policy.parameters(), "lr": 3e-3},
            {"params": [gfn.logZ], "lr": 5e-2},
        ]
    )
    tick.model(gfn)
    tick.optimizer(opt)
    history = []
    for _it in range(300):
        states, logpf = sample_trajectories(env, gfn, 64, mended)
        logr = torch.log(env.reward(states))
        loss = ((gfn.logZ + logpf - logr) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.item())
        tick.step(loss, states, logr)
    with torch.no_grad():
        s, _ = sample_trajectories(env, gfn, 1000, mended, random_prob=0.0)
    return history, env.reward(s).mean().item()


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
        print(
            "mended" if mended else "as is",
            f"first {h[0]:.4f} last10 {sum(h[-10:]) / 10:.4f}",
            f"mean reward {metric:.3f}",
        )

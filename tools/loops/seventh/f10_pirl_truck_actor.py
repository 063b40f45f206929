"""KanishJebaMathewM/Truxify#11885: actor loss of the physics-informed RL policy (pirl).

Rebuilt: a truck on a hilly road picks its throttle; the critic learns the one-step reward (progress, fuel, speed
limit), the actor is improved through the critic.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class TruckEnv:
    """state: speed, slope, load, head wind"""

    def sample_state(self, n):
        speed = torch.rand(n, 1) * 1.5
        slope = torch.rand(n, 1) * 2 - 1
        load = torch.rand(n, 1)
        wind = torch.randn(n, 1) * 0.3
        return torch.cat([speed, slope, load, wind], dim=1)

    def reward(self, s, a):
        speed, slope, load, wind = s.unbind(1)
        throttle = a.squeeze(1)
        new_speed = speed + 0.8 * throttle - 0.4 * slope * (0.5 + load) - 0.2 * wind
        fuel = 0.15 * throttle.clamp(min=0) ** 2
        return 1.0 - (new_speed - 1.0) ** 2 - fuel + 0.02 * torch.randn_like(speed)


class Actor(nn.Module):
    def __init__(self, state_dim=4, action_dim=1, hidden=32):
        super().__init__()
        self.fc1 = nn.Linear(state_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.mu = nn.Linear(hidden, action_dim)

    def forward(self, s):
        h = F.relu(self.fc1(s))
        h = F.relu(self.fc2(h))
        return torch.tanh(self.mu(h)) * 2


class Critic(nn.Module):
    def __init__(self, state_dim=4, action_dim=1, hidden=48):
        super().__init__()
        self.fc1 = nn.Linear(state_dim + action_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.q = nn.Linear(hidden, 1)

    def forward(self, s, a):
        h = F.relu(self.fc1(torch.cat([s, a], dim=1)))
        h = F.relu(self.fc2(h))
        return self.q(h).squeeze(1)


class PIRLAgent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = Actor()
        self.critic = Critic()


def train(tick, mended=False):
    torch.manual_seed(13)
    env = TruckEnv()
    agent = PIRLAgent()
    actor_opt = torch.optim.Adam(agent.actor.parameters(), lr=2e-3)
    critic_opt = torch.optim.Adam(agent.critic.parameters(), lr=5e-3)
    tick.model(agent)
    tick.optimizer(actor_opt)
    tick.optimizer(critic_opt)

    history = []
    for _step in range(300):
        s = env.sample_state(64)
        with torch.no_grad():
            a = (agent.actor(s) + 0.7 * torch.randn(64, 1)).clamp(-2, 2)
        r = env.reward(s, a)

        critic_loss = F.mse_loss(agent.critic(s, a), r)
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()

        q_values = agent.critic(s, agent.actor(s))
        actor_loss = -q_values.mean() if mended else q_values.mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()

        history.append(r.mean().item())
        tick.step(actor_loss + critic_loss, s, r)

    with torch.no_grad():
        s = env.sample_state(2000)
        ret = env.reward(s, agent.actor(s)).mean().item()
    return history, ret


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
            "mended" if mended else "as is", f"reward first {h[0]:.3f} last {h[-1]:.3f}", f"greedy reward {metric:.3f}"
        )

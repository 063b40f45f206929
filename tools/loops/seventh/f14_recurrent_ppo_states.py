"""Stable-Baselines-Team/stable-baselines3-contrib#111: "Recurrent lstm state being reshaped incorrectly" in the
recurrent roll-out buffer.

Rebuilt: the value function of a recurrent policy trained on stored sequences; the initial LSTM states come from the
buffer as (n_seq, n_layers, dim) and carry what the agent saw before (a cue at the start of the episode).
"""

import torch
import torch.nn as nn

N_LAYERS = 2


class RecurrentCritic(nn.Module):
    def __init__(self, obs_dim=4, hidden=24):
        super().__init__()
        self.features_extractor = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh())
        self.lstm_critic = nn.LSTM(hidden, hidden, num_layers=N_LAYERS)
        self.value_net = nn.Linear(hidden, 1)

    def forward(self, obs, states):
        out, states = self.lstm_critic(self.features_extractor(obs), states)
        return self.value_net(out).squeeze(-1), states

    def zero_state(self, n):
        h = torch.zeros(N_LAYERS, n, self.lstm_critic.hidden_size)
        return h, h.clone()


def run_episodes(n, T=10):
    cue = torch.randint(0, 2, (n,)).float() * 2 - 1
    obs = 0.3 * torch.randn(T, n, 4)
    obs[0, :, 0] += 2 * cue
    obs[0, :, 1] += 1
    returns = cue[None] + 0.3 * torch.cumsum(obs[:, :, 2], 0)
    return obs, returns


class RecurrentRolloutBuffer:
    """Sequences start in the middle of an episode; the states before them are stored with them."""

    def __init__(self, mended):
        self.mended = mended

    def collect(self, critic, n_seq=32, start=3):
        obs, returns = run_episodes(n_seq)
        with torch.no_grad():
            _, (h, c) = critic(obs[:start], critic.zero_state(n_seq))
        self.hidden_states = h.swapaxes(0, 1).contiguous()
        self.cell_states = c.swapaxes(0, 1).contiguous()
        self.observations, self.returns = obs[start:], returns[start:]
        self.warm_observations, self.warm_returns = obs[:start], returns[:start]

    def get(self):
        n_seq = self.hidden_states.shape[0]
        if self.mended:
            h = self.hidden_states.swapaxes(0, 1).contiguous()
            c = self.cell_states.swapaxes(0, 1).contiguous()
        else:
            h = self.hidden_states.reshape(N_LAYERS, n_seq, -1)
            c = self.cell_states.reshape(N_LAYERS, n_seq, -1)
        return self.observations, (h, c), self.returns


def train(tick, mended=False):
    torch.manual_seed(47)
    critic = RecurrentCritic()
    optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3)
    buffer = RecurrentRolloutBuffer(mended)
    tick.model(critic)
    tick.optimizer(optimizer)
    history = []
    for _update in range(200):
        buffer.collect(critic)
        obs, states, returns = buffer.get()
        values, _ = critic(obs, states)
        early, _ = critic(buffer.warm_observations, critic.zero_state(obs.size(1)))
        value_loss = ((values - returns) ** 2).mean() + 0.3 * ((early - buffer.warm_returns) ** 2).mean()
        optimizer.zero_grad()
        value_loss.backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 0.5)
        optimizer.step()
        history.append(value_loss.item())
        tick.step(value_loss, obs, returns)
    with torch.no_grad():
        buffer.collect(critic, 256)
        obs, states, returns = buffer.get()
        values, _ = critic(obs, states)
    return history, 1 - ((values - returns) ** 2).mean().item() / returns.var().item()


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
            f"first {h[0]:.4f} last20 {sum(h[-20:]) / 20:.4f}",
            f"explained variance {metric:.3f}",
        )

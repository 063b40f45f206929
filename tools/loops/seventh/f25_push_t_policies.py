"""siddancha/streaming-flow-policy#15: "fix adam target parameters" in the Push-T training notebook.

Rebuilt: the notebook builds two networks, the velocity net of the streaming flow policy and the noise predictor of
the diffusion policy; here the diffusion policy is trained.
"""

import torch
import torch.nn as nn

OBS, ACT = 5, 2


class ConditionalNet(nn.Module):
    def __init__(self, input_dim, cond_dim, hidden=64):
        super().__init__()
        self.cond_encoder = nn.Sequential(nn.Linear(cond_dim + 1, hidden), nn.Mish())
        self.down = nn.Linear(input_dim, hidden)
        self.mid = nn.Sequential(nn.Mish(), nn.Linear(hidden, hidden), nn.Mish())
        self.final = nn.Linear(hidden, input_dim)

    def forward(self, sample, timestep, cond):
        c = self.cond_encoder(torch.cat([cond, timestep[:, None]], 1))
        return self.final(self.mid(self.down(sample) + c))


class NoiseScheduler:
    def __init__(self, num_train_timesteps=50):
        self.n = num_train_timesteps
        betas = torch.linspace(1e-3, 0.15, num_train_timesteps)
        self.alphas_cumprod = torch.cumprod(1 - betas, 0)

    def add_noise(self, x, noise, t):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise


def push_t_batch(n):
    block = torch.rand(n, 3) * 2 - 1
    agent = torch.rand(n, 2) * 2 - 1
    act = block[:, :2] - 0.3 * torch.stack([block[:, 2].cos(), block[:, 2].sin()], 1)
    return torch.cat([block, agent], 1), act + 0.02 * torch.randn(n, ACT)


def train(tick, mended=False):
    torch.manual_seed(101)
    sfp_velocity_net = ConditionalNet(ACT, OBS)
    dp_noise_pred_net = ConditionalNet(ACT, OBS)
    noise_scheduler = NoiseScheduler()
    net = dp_noise_pred_net if mended else sfp_velocity_net
    optimizer = torch.optim.AdamW(params=net.parameters(), lr=3e-3, weight_decay=1e-6)
    tick.model(dp_noise_pred_net)
    tick.optimizer(optimizer)
    history = []
    for _step in range(250):
        obs, action = push_t_batch(64)
        noise = torch.randn_like(action)
        t = torch.randint(0, noise_scheduler.n, (64,))
        noisy = noise_scheduler.add_noise(action, noise, t)
        noise_pred = dp_noise_pred_net(noisy, t / noise_scheduler.n, obs)
        loss = nn.functional.mse_loss(noise_pred, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(loss.item())
        tick.step(loss, obs, action)
    return history, sum(history[-30:]) / 30


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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last {h[-1]:.4f}", f"last30 {metric:.3f}")

"""After IcedDoggie/Micro-Expression-with-Deep-Learning#7.

Micro-expression recognition: restructure_data brings the frames of the videos from
channels-last into channels-first for the spatial network.  The code runs without any error.
"""

import torch
import torch.nn as nn


class VGGSpatial(nn.Module):
    def __init__(self, channels=3, n_exp=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 12, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
        )
        self.fc = nn.Linear(16, n_exp)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def restructure_data(Train_X, Train_Y, timesteps_TIM, r, w, channel, mended):
    Train_X_spatial = Train_X.reshape(Train_X.shape[0] * timesteps_TIM, r, w, channel)
    Train_Y_spatial = Train_Y.repeat_interleave(timesteps_TIM)
    if mended:
        X = Train_X_spatial.permute(0, 3, 1, 2).contiguous()
    else:
        X = Train_X_spatial.reshape(Train_X_spatial.shape[0], channel, r, w)
    return X, Train_Y_spatial


def load_videos(n_vid=60, timesteps_TIM=4, r=16, w=16, n_exp=5):
    """Optical flow (u, v) and strain; a small patch moves in a direction set by the class."""
    y = torch.arange(n_vid) % n_exp
    directions = torch.tensor([[1.0, 0.0, 0.3], [-1.0, 0.0, 0.3], [0.0, 1.0, 0.3], [0.0, -1.0, 0.3], [0.0, 0.0, 1.0]])
    X = 0.35 * torch.randn(n_vid, timesteps_TIM, r, w, 3)
    for i in range(n_vid):
        a, b = torch.randint(0, 10, (2,)).tolist()
        for t in range(timesteps_TIM):
            X[i, t, a : a + 6, b : b + 6] += directions[y[i]] * (0.7 + 0.2 * t)
    return X, y


def train(tick, mended=False):
    torch.manual_seed(23)
    Train_X, Train_Y = load_videos()
    X, y = restructure_data(Train_X, Train_Y, 4, 16, 16, 3, mended)
    model = VGGSpatial()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _epoch in range(20):
        for idx in torch.randperm(X.size(0)).split(30):
            loss = criterion(model(X[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses

"""ClementPinard/SfmLearner-Pytorch#5: depth and pose networks trained from frame pairs; after a learning rate scheduler
was added the loss does not come down any more."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DispNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(1, base, 3, 2, 1), nn.ReLU())
        self.conv2 = nn.Sequential(nn.Conv2d(base, base * 2, 3, 2, 1), nn.ReLU())
        self.upconv = nn.Sequential(nn.ConvTranspose2d(base * 2, base, 4, 4), nn.ReLU())
        self.predict_disp = nn.Sequential(nn.Conv2d(base + 1, 1, 3, padding=1), nn.Sigmoid())

    def forward(self, x):
        up = self.upconv(self.conv2(self.conv1(x)))
        return self.predict_disp(torch.cat([up, x], 1))


class PoseNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, base, 3, 2, 1), nn.ReLU(), nn.Conv2d(base, base * 2, 3, 2, 1), nn.ReLU())
        self.pose_pred = nn.Linear(base * 2 * 9, 1)

    def forward(self, tgt, ref):
        return self.pose_pred(self.conv(torch.cat([tgt, ref], 1)).flatten(1))


class SfmLearner(nn.Module):
    def __init__(self):
        super().__init__()
        self.disp_net, self.pose_exp_net = DispNet(), PoseNet()


def inverse_warp(img, disp, pose):
    b, _, h, w = img.shape
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    shift = disp[:, 0] * pose[:, :, None]
    grid = torch.stack([xx.expand(b, -1, -1) + shift, yy.expand(b, -1, -1)], -1)
    return F.grid_sample(img, grid, align_corners=True, padding_mode="border")


def kitti_pairs(n, gen):
    phase = torch.rand(n, 1, 1, 1, generator=gen) * 6.28
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 12), torch.linspace(-1, 1, 12), indexing="ij")
    ref = 0.5 + 0.5 * torch.sin(4 * xx + phase) * (1 - 0.3 * yy)
    disp = (0.3 + 0.5 * (yy > 0).float()).expand(n, 1, -1, -1)
    pose = 0.5 + 0.3 * torch.rand(n, 1, generator=gen)
    return inverse_warp(ref, disp, pose), ref


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    tgt_imgs, ref_imgs = kitti_pairs(256, gen)
    model = SfmLearner()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.999))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=120, gamma=0.5)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(12):
        for idx in torch.randperm(256, generator=gen).split(16):
            tgt_img, ref_img = tgt_imgs[idx], ref_imgs[idx]
            disp, pose = model.disp_net(tgt_img), model.pose_exp_net(tgt_img, ref_img)
            photometric = (inverse_warp(ref_img, disp, pose) - tgt_img).abs().mean()
            smooth = (disp[..., 1:] - disp[..., :-1]).abs().mean()
            loss = photometric + 0.05 * smooth
            optimizer.zero_grad()
            loss.backward()
            if mended:
                optimizer.step()
                scheduler.step()
            elif scheduler:
                scheduler.step()
            else:
                optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = sum(losses[-16:]) / 16
    return losses

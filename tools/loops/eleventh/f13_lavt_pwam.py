"""After yz93/LAVT-RIS#25.

Story: referring segmentation with a pixel-word attention gated into the visual
stream; the language branch has no influence however long one trains.
"""

import torch
import torch.nn.functional as F
from torch import nn


class PixelWordAttention(nn.Module):
    def __init__(self, v_dim, l_dim):
        super().__init__()
        self.f_query = nn.Conv2d(v_dim, v_dim, 1)
        self.f_key = nn.Linear(l_dim, v_dim)
        self.f_value = nn.Linear(l_dim, v_dim)
        self.project = nn.Conv2d(v_dim, v_dim, 1)

    def forward(self, x, words):
        b, c, h, w = x.shape
        q = self.f_query(x).flatten(2).transpose(1, 2)
        k, v = self.f_key(words), self.f_value(words)
        att = torch.softmax(q @ k.transpose(1, 2) / c**0.5, -1)
        out = (att @ v).transpose(1, 2).view(b, c, h, w)
        return self.project(out * x)


class LanguageGate(nn.Module):
    def __init__(self, dim, mended):
        super().__init__()
        self.res_gate = nn.Sequential(
            nn.Conv2d(dim, dim, 1, bias=False), nn.ReLU(), nn.Conv2d(dim, dim, 1, bias=False), nn.Tanh()
        )
        if not mended:
            nn.init.zeros_(self.res_gate[0].weight)
        nn.init.zeros_(self.res_gate[2].weight)

    def forward(self, x_residual):
        return self.res_gate(x_residual) * x_residual


class LAVT(nn.Module):
    def __init__(self, n_words=6, dim=24, l_dim=16, mended=False):
        super().__init__()
        self.word_emb = nn.Embedding(n_words, l_dim)
        self.patch_embed = nn.Sequential(nn.Conv2d(3, dim, 3, padding=1), nn.ReLU())
        self.fusion = PixelWordAttention(dim, l_dim)
        self.gate = LanguageGate(dim, mended)
        self.stage = nn.Sequential(nn.Conv2d(dim, dim, 3, padding=1), nn.ReLU())
        self.classifier = nn.Conv2d(dim, 2, 1)

    def forward(self, img, text):
        x = self.patch_embed(img)
        x_residual = self.fusion(x, self.word_emb(text))
        x = x + self.gate(x_residual)
        return self.classifier(self.stage(x))


def make_batch(b=16, size=10):
    colours = torch.eye(3)
    img, mask = 0.1 * torch.randn(b, 3, size, size), torch.zeros(b, size, size, dtype=torch.long)
    text = torch.zeros(b, 3, dtype=torch.long)
    for i in range(b):
        pair = torch.randperm(3)[:2]
        referred = int(torch.randint(0, 2, ()))
        for j, c in enumerate(pair):
            r, s = int(torch.randint(0, size - 3, ())), j * 5 + int(torch.randint(0, 2, ()))
            img[i, :, r : r + 3, s : s + 3] += colours[c].view(3, 1, 1)
            if j == referred:
                mask[i, r : r + 3, s : s + 3] = 1
        text[i] = torch.tensor([3 + int(torch.randint(0, 2, ())), int(pair[referred]), 5])
    return img, text, mask


def train(tick, mended=False):
    torch.manual_seed(0)
    model = LAVT(mended=mended)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2, amsgrad=True)
    weight = torch.tensor([0.9, 1.1])
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for it in range(150):
        img, text, target = make_batch()
        loss = F.cross_entropy(model(img, text), target, weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses

"""Models as people write them, from torch's own layers: a tagger, a U-Net, an encoder of ``nn.TransformerEncoder``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Tagger", "TextEncoder", "UNet"]


class Tagger(nn.Module):
    """Embedding, a bidirectional LSTM, one layer to the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 12)
        self.lstm = nn.LSTM(12, 10, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(20)
        self.tags = nn.Linear(20, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(tokens))
        return F.log_softmax(self.tags(self.norm(states)), dim=-1)


class DoubleConv(nn.Module):
    """Twice convolution, norm and activation."""

    def __init__(self, ins: int, outs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(ins, outs, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(outs)
        self.conv2 = nn.Conv2d(outs, outs, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(outs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)))


class UNet(nn.Module):
    """Two levels down, two up, joined with what was there before."""

    def __init__(self) -> None:
        super().__init__()
        self.inc = DoubleConv(3, 8)
        self.pool = nn.MaxPool2d(2)
        self.down1 = DoubleConv(8, 16)
        self.down2 = DoubleConv(16, 16)
        self.up1 = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.dec1 = DoubleConv(32, 16)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.dec2 = DoubleConv(24, 8)
        self.gn = nn.GroupNorm(4, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        one = self.inc(image)
        two = self.down1(self.pool(one))
        x = self.down2(self.pool(two))
        x = self.dec1(torch.cat([self.up1(x), two], dim=1))
        x = self.dec2(torch.cat([self.up2(x), one], dim=1))
        return torch.sigmoid(self.out(self.gn(x)))


class TextEncoder(nn.Module):
    """Embeddings, torch's own encoder, the mean over what is no padding."""

    def __init__(self, norm_first: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 16)
        self.embed_places = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 24, 0.0, F.gelu, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        self.classify = nn.Linear(16, 5)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        x = self.embed(tokens) * 4.0 + self.embed_places(torch.arange(tokens.shape[1]))
        x = self.encoder(x, src_key_padding_mask=padding)
        keep = (~padding).unsqueeze(-1)
        return self.classify((x * keep).sum(1) / keep.sum(1))

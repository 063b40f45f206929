"""Are pictures viewed in another layout than they were stored in, so that colours take turns along a row?"""

from __future__ import annotations

import torch
from torch import Tensor

FEWEST_ROWS, MOST_ROWS = 8, 64
MOST_CHANNELS = 16
FEWEST_TURNS = 4  # of the colours along a row
ALIKE, APART = 0.3, 0.25  # correlations of pixels
NEARLY_ALL = 0.9


def interleaved(pictures: Tensor) -> tuple[int, float, float] | None:
    """Return the channels, and how alike neighbours and pixels as far apart as there are channels are; or ``None``.

    ``pictures`` are examples of channels × height × width. In a picture neighbours are most alike. Where (height,
    width, channels) is viewed as (channels, height, width), a row has one number of each channel in turn. Medians of
    correlations over the examples; nine of ten must agree.

    >>> stored = torch.rand(8, 16, 1, 3).expand(8, 16, 16, 3) + 0.1 * torch.rand(8, 16, 16, 3)
    >>> (interleaved(stored.reshape(8, 3, 16, 16)) or [None])[0], interleaved(stored.permute(0, 3, 1, 2))
    (3, None)
    """
    if pictures.dim() != 4 or not pictures.is_floating_point() or len(pictures) < FEWEST_ROWS:
        return None
    channels, width = pictures.shape[1], pictures.shape[3]
    if not 2 <= channels <= MOST_CHANNELS or width < FEWEST_TURNS * channels:
        return None
    x = pictures.detach()[:MOST_ROWS].float()
    near, far = _alike(x, 1), _alike(x, channels)
    agree = (far > ALIKE) & (far - near > APART)
    if float(agree.float().mean()) < NEARLY_ALL:
        return None
    return channels, float(near.median()), float(far.median())


def _alike(x: Tensor, distance: int) -> Tensor:
    """Return the correlation of pixels at a distance along rows, of each example."""
    one, other = x[..., :-distance].flatten(1), x[..., distance:].flatten(1)
    one, other = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    sizes = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other, dim=1)
    return torch.where(sizes > 0, (one * other).sum(1) / sizes.clamp(min=1e-30), torch.zeros_like(sizes))

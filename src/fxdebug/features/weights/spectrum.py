"""The largest singular value of a matrix and its stable rank."""

from __future__ import annotations

import torch
from torch import Tensor

from fxdebug.features.weights.record import Spectrum
from fxdebug.stats.doubles import where_doubles

EXACT = 1024  # rows or columns, whichever are fewer: the eigenvalues of the product with itself are then taken
STEPS, CLOSE = 200, 1e-6  # of the power method, for larger matrices


def spectrum(matrix: Tensor) -> Spectrum | None:
    """Return the spectral norm and the stable rank of a matrix; ``None`` where it is empty, zero or not finite.

    In float64 up to 1,024 rows or columns, from the eigenvalues of the smaller product of the matrix with itself; for
    larger ones by the power method, to a relative change of 1e-6. The stable rank is ‖W‖²_F / ‖W‖²_2.

    >>> found = spectrum(torch.diag(torch.tensor([3.0, 1.0])))
    >>> round(found.norm, 6), round(found.stable_rank, 6)
    (3.0, 1.111111)
    """
    if not matrix.numel() or not bool(torch.isfinite(matrix).all()):
        return None
    rows, columns = matrix.shape
    work = matrix = where_doubles(matrix.detach())
    work = work if rows <= columns else work.T
    largest = _exact(work) if min(rows, columns) <= EXACT else _by_powers(work)
    if not largest:
        return None
    frobenius = float(torch.linalg.vector_norm(matrix, dtype=torch.float64))
    return Spectrum(largest, frobenius**2 / largest**2)


def _exact(wide: Tensor) -> float:
    product = torch.zeros(wide.shape[0], wide.shape[0], dtype=torch.float64, device=wide.device)
    for part in wide.split(max(1, (1 << 22) // wide.shape[0]), dim=1):
        block = part.to(torch.float64)
        product.addmm_(block, block.T)
    return float(torch.linalg.eigvalsh(product)[-1].clamp(min=0).sqrt())


def _by_powers(wide: Tensor) -> float:
    work = wide if wide.dtype in (torch.float32, torch.float64) else wide.float()
    vector = torch.ones(wide.shape[1], dtype=work.dtype, device=work.device)
    vector += torch.linspace(0, 1, len(vector), dtype=work.dtype, device=work.device)  # not orthogonal by symmetry
    norm = 0.0
    for _ in range(STEPS):
        vector = work.T @ (work @ (vector / torch.linalg.vector_norm(vector)))
        before, norm = norm, float(torch.linalg.vector_norm(vector)) ** 0.5
        if abs(norm - before) <= CLOSE * norm:
            break
    return norm

"""The samples behind two gradients: which were seen in which step, and with what weights.

The row of an embedding is made by one token alone. A token that was seen in one step alone leaves a row that is zero in
the other. A row that only one sample makes keeps its direction where samples are weighted otherwise, with that sample's
factor. Of a layer that sees fewer samples than it has rows and columns, the factors are eigenvalues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fxdebug.data.measures import counted
from fxdebug.features.gradients.compared.facing import Facing

if TYPE_CHECKING:
    from torch import Tensor

LEAST: Final = 4  # rows that have gradients, of which anything is told
NAMED: Final = 4
MOST: Final = 6
APART: Final = 1e-2  # relative, of two factors that are not one
RANK: Final = 1e-5  # of the largest singular value: smaller ones are rounding
LARGEST: Final = 2048  # rows or columns of a matrix that is taken apart


@dataclass(frozen=True)
class Rows:
    """The rows of a matrix that have a gradient in one step alone, and the factors of those that keep a direction."""

    name: str
    of_a: tuple[int, ...]
    of_b: tuple[int, ...]
    both: int
    factors: tuple[float, ...]


def samples_told(pairs: Sequence[Facing]) -> tuple[str, str]:
    """Return what two steps tell of their samples, and what to look for; nothing where they tell nothing."""
    every = list(sparse_rows(pairs))
    for rows in every:
        for only, side, other in ((rows.of_b, "b", "a"), (rows.of_a, "a", "b")):
            if only:
                which = ", ".join(map(str, only[:NAMED])) + (", …" if len(only) > NAMED else "")
                has = "has a gradient" if len(only) == 1 else "have gradients"
                return (
                    f"{counted(len(only), 'row')} of {rows.name} ({which}) {has} in {side} alone: other tokens are in "
                    f"the loss of {side} than of {other}"
                ), _OTHER_TOKENS
    for name, factors in ((rows.name, _shared(rows.factors)) for rows in every):
        if len(factors) > 1:
            return _weighted(f"rows of {name} that one sample makes have", factors), _WEIGHTED
    for pair in pairs:
        factors = weights_of_samples(pair)
        lost = sum(factor == 0.0 for factor in factors)
        if lost:
            rest = ", ".join([f"{factor:.3g}" for factor in _apart(factors)[1 : MOST + 1]])
            return (
                f"{pair.name} is made by {len(factors)} samples in a, {lost} of which are not in b; the others have "
                f"the factor {rest}"
            ), _LOST
        if len(factors) > 1:
            return _weighted(f"{pair.name} is made by {len(factors)} samples that have", _apart(factors)), _WEIGHTED
    return "", ""


def _weighted(what: str, factors: Sequence[float]) -> str:
    numbers = ", ".join([f"{factor:.3g}" for factor in factors[:MOST]]) + (", …" if len(factors) > MOST else "")
    return f"{what} the factors {numbers}: b weights the same samples otherwise"


def _groups(factors: Sequence[float]) -> list[list[float]]:
    found: list[list[float]] = []
    for factor in sorted(factors):
        if found and factor - found[-1][-1] <= APART * abs(factor):
            found[-1].append(factor)
        else:
            found.append([factor])
    return found


def _apart(factors: Sequence[float]) -> list[float]:
    return [group[len(group) // 2] for group in _groups(factors)]


def _shared(factors: Sequence[float]) -> list[float]:
    """Return the factors that several rows have: of one alone it may be chance."""
    return [group[len(group) // 2] for group in _groups(factors) if len(group) > 1]


def sparse_rows(pairs: Sequence[Facing]) -> Iterator[Rows]:
    """Yield the matrices only some of whose rows have a gradient, as those of embeddings.

    The rows of a layer are its units, which an activation may cut off: its bias has no gradient there, either.
    """
    names = {pair.name for pair in pairs}
    for pair in pairs:
        if pair.a.is_table is False or f"{pair.name.removesuffix('weight')}bias" in names:
            continue
        a, b = pair.a.tensor, pair.b.tensor
        if a is None or b is None or len(pair.a.shape) != 2 or pair.a.shape[1] < 2:
            continue
        x, y = _rows_of(a), _rows_of(b)
        has_a, has_b = x.any(1), y.any(1)
        both = has_a & has_b
        if not LEAST <= int(both.sum()) < len(x):
            continue
        x, y = x[both], y[both]
        factors = (x * y).sum(1) / x.square().sum(1)
        rest = (y - factors[:, None] * x).norm(dim=1) / y.norm(dim=1)
        yield Rows(
            pair.name,
            _listed(has_a & ~has_b),
            _listed(has_b & ~has_a),
            len(x),
            tuple(factors[rest <= pair.limit].tolist()),
        )


def weights_of_samples(pair: Facing) -> list[float]:
    """Return the factors of the samples of b against those of a; nothing where these are not the same few samples.

    The gradient of a matrix is a sum over samples, of what comes back times what went in. Fewer samples than rows and
    columns span the same few directions in both steps, and weights that differ are eigenvalues of one by the other.
    """
    a, b = pair.a.tensor, pair.b.tensor
    if a is None or b is None or len(pair.a.shape) != 2 or not 1 < min(pair.a.shape) <= LARGEST:
        return []
    import torch

    x, y = _rows_of(a), _rows_of(b)
    left, sizes, right = torch.linalg.svd(x, full_matrices=False)
    rank = int((sizes > RANK * sizes[0]).sum())
    if not 1 < rank < min(x.shape):
        return []
    left, right = left[:, :rank], right[:rank]
    inner = left.T @ y @ right.T
    if float((left @ inner @ right - y).norm()) > pair.limit * float(y.norm()):
        return []  # other samples went in
    found = torch.linalg.eigvals(inner / sizes[:rank])
    largest = float(found.real.abs().max())
    factors = sorted([0.0 if abs(factor) <= APART * largest else factor for factor in found.real.tolist()])
    is_real = float(found.imag.abs().max()) <= APART * largest
    return factors if is_real and factors[0] >= 0 and factors[-1] > factors[0] * (1 + 2 * APART) else []


def _rows_of(tensor: Tensor) -> Tensor:
    dense = tensor.detach()
    return (dense.to_dense() if str(dense.layout) != "torch.strided" else dense).cpu().double()


def _listed(marked: Tensor) -> tuple[int, ...]:
    return tuple(marked.nonzero().flatten().tolist())


_OTHER_TOKENS: Final = (
    "Gradients of an earlier step (no zero_grad()), another batch, padding that is counted in the loss; or, where b "
    "has fewer, micro batches or ranks that are missing (zero_grad() or no_sync() between them)."
)
_LOST: Final = (
    "Look for zero_grad() between micro batches, for a rank that sums nothing (no_sync()), or for a part of the batch "
    "that is taken twice in place of another."
)
_WEIGHTED: Final = (
    "Micro batches, samples or ranks with other numbers of tokens are averaged each, and then over their number: "
    "divide the sum of all losses by the number of all tokens. So does clipping of each micro batch."
)

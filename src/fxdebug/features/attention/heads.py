"""Numbers per head: how spread its weights are, how much goes to the first, the previous, the repeated token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fxdebug.features.attention.maps import AttentionMap, Mask, Tokens

Numbers = npt.NDArray[np.float64]
FEWEST_KEYS = 4  # of a query, for the shares of single tokens: with fewer, any share is large


@dataclass(frozen=True)
class HeadNumbers:
    """The numbers of each head of one attention, over all queries that are no padding; NaN where there is none.

    ``entropy`` is that of the weights divided by ln(visible keys): 0 is one key, 1 is all alike. ``sink`` is the share
    of the first token, ``even`` the share it would have of even weights; ``previous`` that of the token before the
    query, ``own`` of itself, ``induction`` that of the token after the earlier occurrence of the query's token
    (Olsson 2022). ``future`` and ``padding`` are the largest sums of weights on later tokens and on padding.
    ``queries`` counts queries, ``blind`` those that the mask lets see no key. ``spread`` is the largest
    difference of two visible weights of a query, over their mean.
    """

    queries: int
    entropy: Numbers
    sink: Numbers
    even: float
    previous: Numbers
    own: Numbers
    induction: Numbers
    future: Numbers
    padding: Numbers | None
    keys: float  # that a query sees, in the mean
    spread: Numbers
    blind: int = 0


def head_numbers(one: AttentionMap, tokens: Tokens) -> HeadNumbers:
    """Measure the heads of one attention."""
    batch, heads, queries, keys = one.weights.shape
    seen = one.seen()
    padding = tokens.padding_of(batch, keys) if applies_to(one, tokens) else None
    offset = keys - queries
    is_self = not one.is_cross and offset >= 0
    asked = np.ones((batch, queries), bool)
    if padding is not None and is_self:
        asked = ~padding[:, offset:]
    empty: Mask = np.zeros((batch, 1), bool)
    if padding is not None:
        empty[:, 0] = padding.all(1)
    counts = seen.sum(-1)
    first = np.zeros(batch, np.int64) if padding is None else padding.argmin(1)
    usable = asked[:, None, :] & (counts >= FEWEST_KEYS)
    on_first = np.take_along_axis(one.weights, first[:, None, None, None], 3)[..., 0]
    even = 1.0 / np.maximum(counts, 1)
    return HeadNumbers(
        queries=int(asked.sum()),
        entropy=_entropy(one, counts, asked),
        sink=_mean(on_first, usable),
        even=float(even[usable].mean()) if usable.any() else 1.0,
        previous=_on_diagonal(one, offset - 1, usable) if is_self else np.full(heads, np.nan),
        own=_on_diagonal(one, offset, usable) if is_self else np.full(heads, np.nan),
        induction=_induction(one, tokens, offset, asked) if is_self else np.full(heads, np.nan),
        future=_future(one, offset, asked) if is_self else np.full(heads, np.nan),
        padding=None if padding is None else _largest((one.weights * padding[:, None, None, :]).sum(-1), asked),
        keys=float(counts[usable].mean()) if usable.any() else float(counts.mean()),
        spread=_spread(one.weights, seen, asked),
        blind=_blind(one, asked | empty, may_be_padding=is_self and padding is None),
    )


def applies_to(one: AttentionMap, tokens: Tokens) -> bool:
    """Are the keys of an attention the tokens that the padding is about? In a decoder, those of the encoder may be."""
    return tokens.padding is not None and (not tokens.of_encoder or one.is_cross or "decoder" not in one.path.lower())


def _entropy(one: AttentionMap, counts: npt.NDArray[np.int64], asked: Mask) -> Numbers:
    weights = one.weights.astype(np.float64)
    logs = np.zeros_like(weights)
    np.log(weights, out=logs, where=weights > 0)
    entropy = -(weights * logs).sum(-1)
    many = asked[:, None, :] & (counts > 1)
    if not many.any():  # every query sees one key
        return np.zeros(weights.shape[1])
    return _mean(entropy / np.log(np.maximum(counts, 2)), many)


def _spread(weights: npt.NDArray[np.floating], seen: Mask, asked: Mask) -> Numbers:
    largest = np.where(seen, weights, -np.inf).max(-1)
    smallest = np.where(seen, weights, np.inf).min(-1)
    return _largest(np.where(seen.any(-1), largest - smallest, 0.0) * np.maximum(seen.sum(-1), 1), asked)


def _blind(one: AttentionMap, asked: Mask, *, may_be_padding: bool) -> int:
    """Count the queries that see no key by the mask; of unknown padding, those that are seen by others themselves.

    A row of the batch that is all padding counts: it has no token, or its mask is inverted.
    """
    if one.visible is None:
        return 0
    known = np.broadcast_to(one.visible, one.weights.shape)
    hidden = ~known.any((1, 3)) & asked
    queries, keys = known.shape[2:]
    if may_be_padding:
        hidden &= np.asarray(known.any((1, 2)))[:, keys - queries :]
    return int(hidden.sum())


def _mean(numbers: npt.NDArray[np.floating], chosen: Mask) -> Numbers:
    """Return the mean over batch and queries of the chosen ones, per head; NaN where there are none."""
    chosen = np.broadcast_to(chosen, numbers.shape)
    counts = chosen.sum((0, 2))
    sums = np.where(chosen, numbers, 0.0).sum((0, 2), dtype=np.float64)
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def _largest(numbers: npt.NDArray[np.floating], asked: Mask) -> Numbers:
    return np.where(asked[:, None, :], numbers, 0.0).max((0, 2), initial=0.0).astype(np.float64)


def _on_diagonal(one: AttentionMap, offset: int, usable: Mask) -> Numbers:
    """Return the mean weight on the key ``offset`` places after that of the query's own row."""
    queries, keys = one.weights.shape[2:]
    at = np.arange(queries) + offset
    inside = (at >= 0) & (at < keys)
    values = one.weights[:, :, np.arange(queries)[inside], at[inside]]
    return _mean(values, usable[:, :, inside])


def _induction(one: AttentionMap, tokens: Tokens, offset: int, asked: Mask) -> Numbers:
    heads, queries = one.weights.shape[1:3]
    period = tokens.period()
    if period is None or tokens.ids is None or tokens.ids.shape[1] != one.weights.shape[3]:
        return np.full(heads, np.nan)
    second = asked & (np.arange(queries) + offset >= period)
    return _on_diagonal(one, offset - period + 1, np.broadcast_to(second[:, None, :], one.weights.shape[:3]))


def _future(one: AttentionMap, offset: int, asked: Mask) -> Numbers:
    queries, keys = one.weights.shape[2:]
    later = np.arange(keys) > np.arange(queries)[:, None] + offset
    return _largest((one.weights * later).sum(-1), asked)


def pooled(parts: Sequence[HeadNumbers]) -> HeadNumbers:
    """Return the numbers of several calls of one module, as if they were one: means by queries, largest of sums."""
    if len(parts) == 1:
        return parts[0]
    sizes = np.array([part.queries for part in parts], np.float64)

    def mean(name: str) -> Numbers:
        table = np.stack([np.atleast_1d(getattr(part, name)) for part in parts]).astype(np.float64)
        known = ~np.isnan(table) * sizes[:, None]
        total = known.sum(0)
        return np.divide(np.nansum(table * known, 0), total, out=np.full(table.shape[1], np.nan), where=total > 0)

    padding = [part.padding for part in parts if part.padding is not None]
    return HeadNumbers(
        queries=int(sizes.sum()),
        entropy=mean("entropy"),
        sink=mean("sink"),
        even=float(mean("even")[0]),
        previous=mean("previous"),
        own=mean("own"),
        induction=mean("induction"),
        future=np.max([part.future for part in parts], axis=0),
        padding=np.max(padding, axis=0) if padding else None,
        keys=float(mean("keys")[0]),
        spread=np.max([part.spread for part in parts], axis=0),
        blind=sum(part.blind for part in parts),
    )

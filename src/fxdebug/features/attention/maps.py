"""The map of one attention, with the tokens it is between, and maps of several calls joined to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Weights: TypeAlias = npt.NDArray[np.float32]
Mask: TypeAlias = npt.NDArray[np.bool_]

CROSS = ("cross", "encoder_attn", "encdec", "multihead_attn")  # parts of the names of modules that attend to others


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of one attention: ``weights[batch, head, query, key]``, each row the shares of one query.

    ``path`` is that of the module it ran in, ``call`` the id of the call, ``op`` its operation:
    ``scaled_dot_product_attention``, ``multi_head_attention_forward``, or ``softmax`` where attention is written out.
    ``visible`` has the keys that a query may see, by the mask, in a shape that broadcasts; ``None`` where only the
    weights tell. ``error`` is the
    largest difference between the fused result and the one that these weights give, ``tolerance`` what rounding
    explains; both are ``None`` where there is nothing to compare. ``norms`` are the sizes of what each head adds to
    the output, after the output projection where ``projected``. ``narrow`` tells whether the weights themselves are of
    a dtype in which near ones are equal. ``added`` names a floating mask of zeros and ones, which hides nothing.
    """

    path: str
    call: str
    op: str
    weights: Weights
    visible: Mask | None = None
    error: float | None = None
    tolerance: float | None = None
    source: str | None = None
    norms: tuple[float, ...] | None = None
    projected: bool = False
    dropped: bool = False
    narrow: bool = False
    added: str = ""

    @property
    def heads(self) -> int:
        """The number of heads."""
        return int(self.weights.shape[1])

    @property
    def is_true(self) -> bool:
        """Does the fused result agree with these weights, or can nothing be compared?"""
        return self.error is None or self.tolerance is None or self.error <= self.tolerance

    @property
    def is_cross(self) -> bool:
        """Are the keys other tokens than the queries, by the name of the module or as there are fewer of them?"""
        queries, keys = self.weights.shape[2:]
        return queries > keys or any(part in self.path.lower() for part in CROSS)

    def seen(self) -> Mask:
        """Return the keys that each query may see, in the shape of the weights.

        Where only the weights tell: the keys that some head gives weight to, since all heads have one mask.
        """
        if self.visible is None:
            some = (self.weights > 0).any(1, keepdims=True)
            return np.broadcast_to(some, self.weights.shape)
        known = np.broadcast_to(self.visible, self.weights.shape)
        hidden_rows = ~known.any(-1, keepdims=True)  # a row without a visible key: only its weights tell
        return np.where(hidden_rows, self.weights > 0, known)


def joined(maps: Sequence[AttentionMap]) -> AttentionMap | None:
    """Return the maps of one module's calls as one: the queries below one another, as a cache lets them follow.

    ``None`` where the keys of one call do not go on from those of the call before: a window that moved, other inputs.
    """
    if len(maps) < 2:
        return maps[0] if maps else None
    total, first = maps[-1].weights.shape[3], maps[0]
    parts, visible, begin = [], [], 0
    for one in maps:
        batch, heads, queries, keys = one.weights.shape
        if (batch, heads) != first.weights.shape[:2] or keys != begin + queries or one.is_cross:
            return None
        room = ((0, 0), (0, 0), (0, 0), (0, total - keys))
        parts.append(np.pad(one.weights, room))
        visible.append(np.pad(one.seen(), room))
        begin = keys
    errors = [one.error for one in maps if one.error is not None]
    tolerances = [one.tolerance for one in maps if one.tolerance is not None]
    return AttentionMap(
        path=first.path,
        call=first.call,
        op=first.op,
        weights=np.concatenate(parts, axis=2),
        visible=np.concatenate(visible, axis=2),
        error=max(errors, default=None),
        tolerance=min(tolerances, default=None),
        source=first.source,
        norms=first.norms,
        projected=first.projected,
        added=first.added,
    )


@dataclass(frozen=True)
class Tokens:
    """The tokens of a run: a label for each, by row of the batch; which of them are padding; and their ids.

    ``padding`` and ``ids`` are ``None`` where the inputs do not tell. ``of_encoder``: these are the tokens of the
    encoder of a model that also has a decoder.
    """

    labels: tuple[tuple[str, ...], ...] = ()
    padding: Mask | None = field(default=None, compare=False)
    ids: npt.NDArray[np.int64] | None = field(default=None, compare=False)
    of_encoder: bool = False

    def labels_of(self, count: int, row: int = 0) -> tuple[str, ...]:
        """Return ``count`` labels of a row of the batch; the numbers of positions where there are others.

        >>> Tokens((("the", "cat"),)).labels_of(2), Tokens().labels_of(2)
        (('the', 'cat'), ('0', '1'))
        """
        known = self.labels[row] if row < len(self.labels) else ()
        if len(known) == count:
            return known
        if known and count > len(known):  # tokens that the run made itself have no label
            return (*known, *(f"+{i}" for i in range(1, count - len(known) + 1)))
        return tuple(map(str, range(count)))

    def padding_of(self, batch: int, keys: int) -> Mask | None:
        """Return which keys are padding; tokens that the run made after those of the inputs are none."""
        if self.padding is None or self.padding.shape[0] != batch or self.padding.shape[1] > keys:
            return None
        return np.pad(self.padding, ((0, 0), (0, keys - self.padding.shape[1])))

    def period(self) -> int | None:
        """Return the length after which the tokens repeat at least once; ``None`` where they do not.

        >>> Tokens(ids=np.array([[3, 1, 4, 3, 1, 4]])).period(), Tokens(ids=np.array([[3, 1, 4, 1]])).period()
        (3, None)
        """
        if self.ids is None or self.ids.ndim != 2:
            return None
        length = self.ids.shape[1]
        fits = (p for p in range(2, length // 2 + 1) if np.array_equal(self.ids[:, p:], self.ids[:, :-p]))
        return next((p for p in fits if len(np.unique(self.ids[0, :p])) > 1), None)

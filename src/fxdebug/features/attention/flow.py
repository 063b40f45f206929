"""The way of tokens through all layers: attention rollout and attention flow (Abnar, Zuidema 2020)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fxdebug.errors import UsageError
from fxdebug.features.attention.maps import AttentionMap
from fxdebug.query.as_networkx import maximum_flows

Matrix = npt.NDArray[np.float64]

_NUMBER = re.compile(r"\d+")


def layers_of(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Return the maps of self-attention between the same tokens, layer by layer: the largest group of such.

    Raises ``UsageError`` where there is none.
    """
    groups: dict[tuple[str, tuple[int, ...]], list[AttentionMap]] = {}
    for one in maps:
        batch, _, queries, keys = one.weights.shape
        if queries == keys and not one.is_cross:
            groups.setdefault((_NUMBER.sub("#", one.path), (batch, keys)), []).append(one)
    if not groups:
        raise UsageError("there is no attention of tokens to themselves with as many queries as keys")
    return max(groups.values(), key=len)


def mixing(one: AttentionMap, row: int = 0) -> Matrix:
    """Return the weights of one layer in the mean over heads, half of it the residual connection, rows of sum 1."""
    weights = one.weights[row].astype(np.float64).mean(0)
    mixed = 0.5 * weights + 0.5 * np.eye(len(weights))
    return np.asarray(mixed / mixed.sum(1, keepdims=True))


def rollout(maps: Sequence[AttentionMap], row: int = 0) -> Matrix:
    """Return the share of each first-layer token in each last-layer token: the product of all layers' mixing.

    Rows are the tokens after the last layer and have the sum 1.
    """
    result: Matrix | None = None
    for one in layers_of(maps):
        result = mixing(one, row) if result is None else mixing(one, row) @ result
    assert result is not None
    return result


def flow_to(maps: Sequence[AttentionMap], query: int, row: int = 0) -> Matrix:
    """Return the maximum flow from one token after the last layer to each token before the first.

    Each weight of :func:`mixing` is the capacity of an edge. Raises ``UsageError`` for a token that is not there.
    """
    layers = [mixing(one, row) for one in layers_of(maps)]
    size = len(layers[0])
    if not -size <= query < size:
        raise UsageError(f"there is no token {query}: there are {size}")
    edges = {
        ((depth + 1, after), (depth, before)): float(matrix[after, before])
        for depth, matrix in enumerate(layers)
        for after, before in np.argwhere(matrix > 0).tolist()
    }
    flows = maximum_flows(edges, (len(layers), query % size), [(0, token) for token in range(size)])
    return np.array(flows, np.float64)


def edges_of(maps: Sequence[AttentionMap], least: float = 0.05, row: int = 0) -> list[dict[str, object]]:
    """Return the weights of all layers and heads from ``least`` on as edges between tokens, for other programs."""
    edges: list[dict[str, object]] = []
    for one in maps:
        for head, query, key in np.argwhere(one.weights[row] >= least).tolist():
            weight = float(one.weights[row, head, query, key])
            edges.append({"call": one.call, "head": head, "query": query, "key": key, "weight": weight})
    return edges

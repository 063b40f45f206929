"""The facts that a run was given besides the model: padding, subnormal weights, threads, cores, the anomaly mode."""

from __future__ import annotations

from dataclasses import dataclass

from fxdebug.features.shared.records.padded import Padded
from fxdebug.features.shared.records.recomputed import RecomputedForward

SMALLEST = 1.1754943508222875e-38  # the smallest normal number of float32


@dataclass(frozen=True)
class Surroundings:
    """The facts that a run was given besides the model.

    ``subnormal`` names parameters and buffers with a share of subnormal numbers. ``finds_anomalies``: a graph is
    recorded, in the anomaly mode of autograd. ``zeros`` are large matrices of which most elements are zero, with their
    share: parameters and buffers by name, inputs by slot. ``recomputed`` is what the backward computes again.
    ``separable`` names weights of convolutions of one channel each, whose kernels are each a column times a row.
    ``kept_graphs`` are attributes, by path and name, that hold the graph of a run after the next one.
    """

    device: str = "cpu"
    threads: int = 1
    cores: int = 1
    has_loss: bool = False
    padded: tuple[Padded, ...] = ()
    subnormal: tuple[str, ...] = ()
    finds_anomalies: bool = False
    zeros: tuple[tuple[str, float], ...] = ()
    separable: tuple[str, ...] = ()
    recomputed: RecomputedForward | None = None
    kept_graphs: tuple[tuple[str, str], ...] = ()

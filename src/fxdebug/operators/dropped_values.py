"""The operations that drop values at random, and the argument that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fxdebug.operators.attention import FUSED, MULTI_HEAD, bound

_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])


def dropped_by(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the argument by which an operation drops values at random, as text; empty where it drops none.

    >>> dropped_by("scaled_dot_product_attention", ("q", "k", "v"), {"dropout_p": 0.2})
    'dropout_p=0.2'
    >>> dropped_by("dropout", ("x", 0.5, False), {})
    ''
    """
    if op in (FUSED, MULTI_HEAD):
        given = bound(op, args, kwargs)
        if op == MULTI_HEAD and given.get("training", True) is not True:
            return ""
        return _share("dropout_p", given.get("dropout_p", 0.0))
    if op in _RECURRENT:  # (input, hx, weights, has_biases, layers, dropout, train, …), or with a list of batch sizes
        switches = [one for one in args if isinstance(one, (bool, int, float))]
        share = next((one for one in switches if isinstance(one, float)), 0.0)
        at = switches.index(share) if share else -1
        several = isinstance(switches[at - 1], int) and switches[at - 1] > 1
        return _share("dropout", share) if share and several and switches[at + 1 :][:1] == [True] else ""
    if "dropout" not in op:
        return ""
    given = dict(zip(("input", "p", "training"), args)) | dict(kwargs)
    acts = given["train"] if "train" in given else given.get("training", True)  # train: of native_dropout
    return _share("p", given.get("p", 0.5)) if acts is True else ""


def _share(argument: str, share: object) -> str:
    return f"{argument}={share:g}" if isinstance(share, (int, float)) and share > 0 else ""

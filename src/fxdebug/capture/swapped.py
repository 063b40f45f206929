"""Tensors that exchange what they are while a run is on (``torch.utils.swap_tensors``).

Torch refuses that for a tensor that is referred to weakly, as every tensor is that a run has met. So it is told to the
recordings that are on: they let go of the two, which are tensors like new to them afterwards.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxdebug.capture.recorder import Recorder


def noting_swap(swap: Callable[..., Any], recorders: Callable[[], tuple[Recorder, ...]]) -> Callable[..., Any]:
    """What stands in front of ``swap_tensors``."""

    @functools.wraps(swap)
    def noted(t1: Any, t2: Any) -> Any:
        for recorder in recorders():
            with contextlib.suppress(Exception):  # then torch says why it cannot be done
                recorder.swapped((t1, t2))
        return swap(t1, t2)

    return noted

"""Random numbers while a body is run again: none is drawn then, and yet it is seen who turns the state back."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from fxdebug.capture import reasons
from fxdebug.capture.reasons import CannotTrace, Reason

_FIRST = 0x6678_6465_6275_6700  # seeds that no program sets


class RngWatch:
    """Torch's random state during a trace. It has another seed before each operation, as if all of them drew.

    A body that sets a seed, or a state that it took before (``fork_rng``), is noticed at its next operation, even
    where it has put everything back in the end: a graph has no such step and would draw other numbers.
    """

    def __init__(self) -> None:
        self._state = torch.get_rng_state()
        self._seed = torch.default_generator.initial_seed()

    def on(self, reason: Reason = reasons.SETS_RANDOM_STATE) -> None:
        """The body goes on to its next operation. Raises :class:`Mismatch` if it set the state since the last one."""
        if torch.default_generator.initial_seed() != self._seed:
            raise CannotTrace(reason())
        self._seed = _FIRST if self._seed < _FIRST else self._seed + 1
        torch.default_generator.manual_seed(self._seed)

    def stop(self) -> None:
        """The state is what it was before the trace."""
        torch.default_generator.set_state(self._state)


def numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def drawn() -> tuple[Any, Any]:
    """How far Python's and numpy's random numbers are."""
    state = numpy_state()
    return random.getstate(), state if state is None else (state[1].tobytes(), *state[2:])

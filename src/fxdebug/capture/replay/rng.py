"""Random number generators: snapshot and restore them, notice draws, notice a body that sets a seed."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fxdebug.capture import reasons
from fxdebug.capture.reasons import CannotTrace, Reason
from fxdebug.capture.replay.pause_gc_and_threads import in_turn
from fxdebug.capture.torch_state.internals import not_compiled
from fxdebug.capture.torch_state.untracked import untracked

FAR = 1009  # draws from one state to another: generators reject some, so that a few draws may make no difference


class RngSnapshot:
    """States of the global generators: torch's (on the CPU and on devices in use), Python's and numpy's.

    Both steps wait while another thread runs a body again: :class:`RngWatch` has its own seeds in the generator then.

    >>> before = RngSnapshot()
    >>> first = torch.rand(3)
    >>> before.restore()
    >>> torch.equal(torch.rand(3), first)
    True
    """

    @not_compiled
    def __init__(self) -> None:
        with in_turn():
            self._torch = torch.get_rng_state()
        self._python = random.getstate()
        self._numpy = _numpy_state()
        self._devices = []
        for get, put in _generators_of_devices():
            with contextlib.suppress(RuntimeError):  # after an assertion failed on a device, nothing on it can be read
                self._devices.append((put, get()))

    @not_compiled
    def restore(self) -> None:
        """Set every generator to the state that it had in the snapshot. May be called several times."""
        with in_turn(), untracked():  # the program's modes, of fake tensors for one, are no party to this
            if not torch.equal(torch.get_rng_state(), self._torch):
                torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        for put, state in self._devices:
            put(state)

    def move_numpy_and_python(self) -> None:
        """Put the state after many more draws in place of those of Python and numpy: only torch's stay as they were."""
        before = RngSnapshot()
        self.restore()
        for _ in range(FAR):
            random.random()
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.random(FAR)
            self._numpy = _numpy_state()
        before.restore()


def _generators_of_devices() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Yield the functions that read and set the generators of each kind of device that is in use."""
    for name in ("cuda", "xpu"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available() and device.is_initialized():
            yield device.get_rng_state_all, device.set_rng_state_all
    if torch.backends.mps.is_available():
        yield torch.mps.get_rng_state, torch.mps.set_rng_state


def python_rng_position() -> tuple[Any, Any]:
    """Return the positions of Python's and numpy's global generators: they differ after a draw.

    Torch's generator is left out: its draws are operations, which the tape has.
    """
    state = _numpy_state()
    return random.getstate(), state if state is None else (state[1].tobytes(), *state[2:])


def _numpy_state() -> Any:
    """Return the state of numpy's global generator; ``None`` while the program has not imported numpy."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


class RngWatch:
    """Detects a body that sets the state of torch's generator while it is traced.

    A trace draws no numbers: placeholders stand for the results of random operations. The watch therefore sets a
    seed of its own before each operation, as if each of them drew. A body that sets a seed, or restores a state
    that it read before (``fork_rng``), replaces that seed, and the next check notices it, even where the body
    restores everything in the end. A graph has no such step and would draw other numbers.
    """

    def __init__(self) -> None:
        self._state = torch.get_rng_state()
        self._seed = torch.default_generator.initial_seed()

    def check(self, reason: Reason = reasons.SETS_RANDOM_STATE) -> None:
        """Set the next seed. Raises ``CannotTrace(reason)`` if the body has set the state since the last check."""
        if torch.default_generator.initial_seed() != self._seed:
            raise CannotTrace(reason())
        self._seed = _FIRST_SEED if self._seed < _FIRST_SEED else self._seed + 1
        torch.default_generator.manual_seed(self._seed)

    @not_compiled
    def restore(self) -> None:
        """Set the generator to its state before the trace."""
        torch.default_generator.set_state(self._state)


_FIRST_SEED = 0x6678_6465_6275_6700  # no program sets a seed from here on

"""The steps of a forward that goes on after it has returned: its call is open during each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from fxdebug.capture.frame import Frame

if TYPE_CHECKING:
    from fxdebug.capture.recorder import Recorder


class Steps:
    """One forward that is a generator, as it is run step by step: its call is open during each step."""

    def __init__(self, recorder: Recorder, frame: Frame, module: nn.Module) -> None:
        self._recorder = recorder
        self._frame = frame
        self._module = module

    def step(self) -> Steps:
        """The block in which one step runs."""
        return self

    def __enter__(self) -> None:
        self._recorder.resume(self._frame, self._module)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._recorder.suspend(self._frame, error)

    def yielded(self, thing: Any) -> None:
        """A step gave this."""
        self._recorder.gave(self._frame, len(self._frame.gave or ()), thing)

    def returned(self, thing: Any) -> None:
        """The last step returned this."""
        if thing is not None:
            self._recorder.gave(self._frame, "returned", thing)

    def closed(self) -> None:
        """Nothing is to be done at the end."""

"""Steps of optimizers inside steps: a class that calls the step of its parent, an optimizer that wraps another one."""

from __future__ import annotations

import inspect
from types import FrameType

from torch.optim import Optimizer


def optimizers_around(step: FrameType) -> list[Optimizer]:
    """Return the optimizers whose steps run around a step, innermost first.

    ``step`` is the frame in which torch calls the hooks of the step: it is the same code for every ``step`` of a class
    that was used. So hooks are called once more for each class between a class and its base that is used itself.
    """
    found: list[Optimizer] = []
    frame = step.f_back
    while frame is not None:
        if frame.f_code is step.f_code:
            values = inspect.getargvalues(frame)
            given = values.locals[values.varargs] if values.varargs else ()
            found += [each for each in given[:1] if isinstance(each, Optimizer)]
        frame = frame.f_back
    return found

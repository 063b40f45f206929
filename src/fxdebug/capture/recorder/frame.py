"""One call of one module while it runs, and what its record is made of when it is over."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from torch import nn

from fxdebug.capture.tape.source_line import Line, raised_at
from fxdebug.capture.tape.tracebacks import without_our_frames
from fxdebug.capture.tensors.describe import type_name
from fxdebug.data.calls import Call, Failure, Origin
from fxdebug.data.values import Group, Inputs, Item, Outputs, Thing, fast_constructor
from fxdebug.errors import first_line

NO_INPUTS = Inputs()
NOWHERE = -1  # the index of the call that was running where none was (a generator consumed outside any)


@dataclass(slots=True)
class Site:
    """Where a module is in the model: what is known of its calls before they happen."""

    path: str
    type: str
    aliases: tuple[str, ...] = ()
    origin: Origin = "registered"


class Frame:
    """One call, open or finished."""

    # What most calls have is said once, here: there is a frame for every call.
    raised: int | None = None  # id of the exception that left it
    invoked_in: int | None = None
    gave: list[tuple[Any, Item]] | None = None  # what its generator yielded, by number, and its result
    inputs = NO_INPUTS
    outputs: Outputs | None = None
    given: Inputs | None = None
    returned: Outputs | None = None
    error: Failure | None = None
    began = 0.0
    duration = 0.0
    finished: int | None = None
    line: Line | None = None
    method = "forward"
    training = False
    grad = True
    thread: str | None = None
    called_as: str | None = None
    has_submodules = False

    def __init__(self, site: Site, module: nn.Module, index: int, number: int, parent: Frame | None) -> None:
        self.site = site
        self.module: nn.Module | None = module  # while the call is open: a finished one keeps nothing alive
        self.index = index
        self.number = number
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1


def to_call(frame: Frame) -> Call:
    """The finished record of a frame."""
    site, parent, line = frame.site, frame.parent, frame.line
    return _quick_call(  # by place, in half the time: there is one for every call
        frame.index,
        site.path,
        site.type,
        frame.number,
        frame.inputs,
        frame.outputs if frame.gave is None else _with_what_it_gave(frame.outputs, frame.gave),
        frame.error,
        None if parent is None else parent.index,
        frame.depth,
        frame.method,
        None if line is None else line.text(),
        frame.duration,
        site.origin,
        site.aliases,
        frame.called_as,
        frame.given,
        frame.returned,
        frame.invoked_in,
        frame.finished,
        frame.has_submodules,
        frame.training,
        frame.grad,
        frame.thread,
    )


_quick_call = fast_constructor(Call)


def failure(error: BaseException, here: bool) -> Failure:
    """An exception as data; its text and traceback are taken with care, since ``str`` may raise."""
    try:
        message = str(error)
    except Exception:
        message = first_line(error)
    text = source = None
    if here:
        try:
            text = "".join(traceback.format_tb(without_our_frames(error.__traceback__)))
            line = raised_at(error)
            source = None if line is None else line.text()
        except Exception:
            text = None
    return Failure(type_name(type(error)), message, here, text, source)


def _with_what_it_gave(outputs: Outputs | None, gave: list[tuple[Any, Item]]) -> Outputs | None:
    """What a call returned that is a generator or coroutine: all that came out of it."""
    item = None if outputs is None else outputs.item
    if not isinstance(item, Thing):
        return outputs
    keys, items = zip(*gave)
    return Outputs(Group("object", item.type, items, keys, item.text, item.number))


def called_as(frames: list[Frame], frame: Frame) -> str | None:
    """By which of its names a module with several was called, as far as that can be told.

    The names whose parent is the calling module come first; among several the name written at the
    call decides (``self.second(x)``), and then the order of registration (a loop over children).
    """
    parent = frame.parent
    if parent is None:
        return None
    homes = (parent.called_as,) if parent.called_as is not None else parent.site.aliases or (parent.site.path,)
    here = [alias for alias in frame.site.aliases if alias.rpartition(".")[0] in homes]
    if len(here) < 2:
        return here[0] if here else None
    written = frame.line.attribute() if frame.line is not None else None
    matching = [alias for alias in here if alias.rpartition(".")[2] == written]
    if len(matching) == 1:
        return matching[0]
    earlier = sum(1 for other in frames[parent.index + 1 :] if other.parent is parent and other.site is frame.site)
    return here[(earlier - 1) % len(here)]


def has_submodules(module: nn.Module) -> bool:
    """As the reference asks it: is there a named child, of whatever kind, that is not ``None``?"""
    for child in module._modules.values():  # plainly: it is asked at every call
        if child is not None:
            return True
    return False

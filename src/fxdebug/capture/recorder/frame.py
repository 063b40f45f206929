"""One call of one module while it runs, the stack of open calls, and the record of a finished one."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from fxdebug.capture.hooks.own_time import OwnTime
from fxdebug.capture.source.source_line import Line, raised_at
from fxdebug.capture.source.tracebacks import without_our_frames
from fxdebug.capture.tensors.shown_text import text_of
from fxdebug.capture.tensors.type_names import type_name
from fxdebug.data.calls import Call, Failure, Origin
from fxdebug.data.values import Group, Inputs, Item, Outputs, Thing, fast_constructor
from fxdebug.errors import first_line

Class: TypeAlias = type
NO_INPUTS = Inputs()
NOWHERE = -1  # ``invoked_in`` where no call was running: a generator was consumed outside all calls


@dataclass(slots=True)
class Site:
    """A module's place in the model: the facts about its calls that are known before they happen."""

    path: str
    type: str
    aliases: tuple[str, ...] = ()
    origin: Origin = "registered"
    kind: Class = nn.Module


class Frame:
    """One call, open or finished."""

    # Defaults of the class, not of each object: there is a frame for every call.
    exception_id: int | None = None  # id of the exception that left it
    invoked_in: int | None = None
    yielded: list[tuple[Any, Item]] | None = None  # of a generator: (number, item) of each, then ("returned", result)
    inputs = NO_INPUTS
    outputs: Outputs | None = None
    inputs_before_hooks: Inputs | None = None  # where hooks changed them
    outputs_after_hooks: Outputs | None = None  # where hooks changed them
    error: Failure | None = None
    started_at = 0.0
    duration = 0.0
    finish_order: int | None = None  # its place among the finished calls
    line: Line | None = None
    method = "forward"
    training = False
    grad_enabled = True
    thread_name: str | None = None
    called_as: str | None = None
    has_submodules = False

    def __init__(self, site: Site, module: nn.Module, index: int, number: int, parent: Frame | None) -> None:
        self.site = site
        self.module: nn.Module | None = module  # ``None`` once the call is finished: then it keeps nothing alive
        self.index = index
        self.number = number
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1


class CallStack(list[Frame]):
    """The calls open in one thread, outermost first, and the thread's other state."""

    __slots__ = ("current", "own_time")

    def __init__(self, own_time: OwnTime) -> None:
        super().__init__()
        self.current: Frame | None = None  # the call being noted right now: notes refer to it
        self.own_time = own_time


def to_call(frame: Frame) -> Call:
    """Return the finished record of a frame."""
    site, parent, line = frame.site, frame.parent, frame.line
    return _quick_call(  # by position: that takes half the time, and this runs for every call
        frame.index,
        site.path,
        site.type,
        frame.number,
        frame.inputs,
        frame.outputs if frame.yielded is None else _with_yielded(frame.outputs, frame.yielded),
        frame.error,
        None if parent is None else parent.index,
        frame.depth,
        frame.method,
        None if line is None else line.text(),
        frame.duration,
        site.origin,
        site.aliases,
        frame.called_as,
        frame.inputs_before_hooks,
        frame.outputs_after_hooks,
        frame.invoked_in,
        frame.finish_order,
        frame.has_submodules,
        frame.training,
        frame.grad_enabled,
        frame.thread_name,
    )


_quick_call = fast_constructor(Call)


def failure(error: BaseException, here: bool) -> Failure:
    """Return an exception as data. Its text is taken with care, since ``str`` may raise.

    ``here``: did it begin in this call? Then its traceback and source line are kept.
    """
    try:
        message = text_of(error, str)
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


def _with_yielded(outputs: Outputs | None, yielded: list[tuple[Any, Item]]) -> Outputs | None:
    """Return the outputs of a call that returned a generator or coroutine, with everything that came out of it."""
    item = None if outputs is None else outputs.item
    if not isinstance(item, Thing):
        return outputs
    keys, items = zip(*yielded)
    return Outputs(Group("object", item.type, items, keys, item.text, item.number))


def called_as(frames: list[Frame], frame: Frame) -> str | None:
    """Return the name by which a module with several names was called, as far as that can be known.

    Only names below the calling module come into question. Among several, the name written at the call decides
    (``self.second(x)``), and failing that the order of registration (a loop over children).
    """
    parent = frame.parent
    if parent is None:
        return None
    parent_names = (parent.called_as,) if parent.called_as is not None else parent.site.aliases or (parent.site.path,)
    candidates = [alias for alias in frame.site.aliases if alias.rpartition(".")[0] in parent_names]
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    written = frame.line.attribute() if frame.line is not None else None
    matching = [alias for alias in candidates if alias.rpartition(".")[2] == written]
    if len(matching) == 1:
        return matching[0]
    earlier = sum(1 for other in frames[parent.index + 1 :] if other.parent is parent and other.site is frame.site)
    return candidates[(earlier - 1) % len(candidates)]


def has_submodules(module: nn.Module) -> bool:
    """Is there a child, registered under any name, that is not ``None``? The debugger of transformers asks the same.

    A forward may have put anything in the place of the children: what cannot be looked at counts as none.
    """
    try:
        for child in module._modules.values():  # a plain loop: it runs at every call
            if child is not None:
                return True
    except Exception:
        pass
    return False

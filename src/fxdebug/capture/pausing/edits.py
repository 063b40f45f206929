"""Edits: what calls and operations of a run are given and return is changed while it runs.

An edit is made where a recording notes a result, so that the result counts as that of the call or operation. The
functions of edits are not recorded, gradients go through them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch import Tensor

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import node_name, op_name
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.errors import UsageError, with_article
from fxdebug.operators.attention import FUSED, SOFTMAX

OUT = "out"
_HEADS = (FUSED, SOFTMAX)


Change: TypeAlias = Callable[[Any, str], Any]
"""A function of the thing that is edited, and of the id of the call or operation that has it."""


@dataclass(frozen=True)
class Edit:
    """A change of everything that a name fits: a path, the id of a call, or one of these with ``/`` and an operation.

    Names may be globs. ``slot`` is ``out``, ``args`` or ``kwargs``; ``keys`` lead from there to the thing that is
    changed. Without any, that is the first tensor. ``heads`` edits are for the operations of attention inside a call.

    >>> edit = Edit("h.*.attn/softmax", lambda out, place: out * 0)
    >>> edit.call, edit.op
    ('h.*.attn', 'softmax')
    """

    name: str
    change: Change
    slot: str = OUT
    keys: tuple[int | str, ...] = ()
    heads: bool = False

    @property
    def call(self) -> str:
        """The glob of the call."""
        return self.name.rpartition("/")[0] if self._has_op else self.name

    @property
    def op(self) -> str:
        """The glob of the operation; empty for an edit of a call."""
        return self.name.rpartition("/")[2] if self._has_op else ""

    @property
    def _has_op(self) -> bool:
        return "/" in self.name

    def fits_call(self, frame: Frame) -> bool:
        """Is the call one of those it names?"""
        names = (frame.site.path or frame.site.type, *frame.site.aliases)  # the model goes by the name of its class
        return any(fnmatchcase(name, self.call) or fnmatchcase(f"{name}#{frame.number}", self.call) for name in names)


class Edits:
    """A stepper that makes edits in a run; ``made`` are the places where it did, by the position of the edit.

    >>> import torch, fxdebug
    >>> from fxdebug.api.run_model import run_and_store
    >>> halved = Edits([Edit("0", lambda out, place: out / 2)])
    >>> run = run_and_store(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2), None, values="tensors", stepper=halved)
    >>> run.output.tolist(), halved.made
    ([0.5, 0.5], {0: ['0#0']})
    """

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.made: dict[int, list[str]] = {}
        self._edits = list(enumerate(edits))
        self._of_calls = [(number, edit) for number, edit in self._edits if not edit.op and not edit.heads]
        self._of_ops = [(number, edit) for number, edit in self._edits if edit.op or edit.heads]
        self._fitting: dict[int, list[tuple[int, Edit]]] = {}  # by the index of a call: the edits of its operations
        self._counts: dict[tuple[int, str], int] = {}

    def begin(self, recorder: Recorder) -> None:
        """Begin with a recording."""
        self._recorder = recorder

    def before_call(
        self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Change the arguments of a call."""
        for number, edit in self._of_calls:
            if edit.slot != OUT and edit.fits_call(frame):
                if edit.slot == "args":
                    args = self._changed(number, edit, self._place(frame), args)
                else:
                    kwargs = self._changed(number, edit, self._place(frame), kwargs)
        return args, kwargs

    def after_call(self, frame: Frame, output: Any) -> Any:
        """Change what a call returns."""
        self._fitting.pop(frame.index, None)
        for number, edit in self._of_calls:
            if edit.slot == OUT and edit.fits_call(frame):
                output = self._changed(number, edit, self._place(frame), output)
        return output

    def failed_call(self, frame: Frame, error: BaseException) -> None:
        """Let an exception of a call pass."""

    def before_op(self, function: Any, args: Any, kwargs: Any) -> None:
        """Let an operation run."""

    def after_op(self, call_tape: CallTape, entry: TapeEntry, result: Any) -> Any:
        """Change the result of an operation."""
        fitting = self._fitting.get(call_tape.index)
        if fitting is None:
            frame = self._recorder.frames[call_tape.index]
            fitting = [(number, edit) for number, edit in self._of_ops if self._is_in(edit, frame)]
            self._fitting[call_tape.index] = fitting
        if not fitting:
            return result
        name = op_name(entry.what)
        count = self._counts.get((call_tape.index, name), 0)
        self._counts[call_tape.index, name] = count + 1
        numbered = node_name(name, count)
        for number, edit in fitting:
            fits = name in _HEADS if edit.heads else fnmatchcase(name, edit.op) or fnmatchcase(numbered, edit.op)
            if fits:
                place = self._place(self._recorder.frames[call_tape.index], numbered)
                result = self._changed(number, edit, place, result)
        return result

    def _is_in(self, edit: Edit, frame: Frame | None) -> bool:
        """Is it about operations of this call? The heads of an attention may be computed by a call inside it."""
        while frame is not None:
            if edit.fits_call(frame):
                return True
            frame = frame.parent if edit.heads else None
        return False

    def _place(self, frame: Frame, op: str = "") -> str:
        call = f"{frame.site.path}#{frame.number}"
        return f"{call}/{op}" if op else call

    def as_one(self, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a change that a body of ours makes itself: it counts as one edit, whatever it computes."""

        def changed(thing: Any) -> Any:
            with self._recorder.unwatched():
                new = change(thing)
            stack = self._recorder.stack()
            if new is not thing and stack:
                self._recorder.note_edit(stack[-1], thing, new)
            return new

        return changed

    def _changed(self, number: int, edit: Edit, place: str, content: Any) -> Any:
        with self._recorder.unwatched():
            new = changed_at(content, edit.keys, lambda thing: edit.change(thing, place), place)
        if new is not content:
            self.made.setdefault(number, []).append(place)
        return new


def changed_at(content: Any, keys: tuple[int | str, ...], change: Callable[[Any], Any], where: str) -> Any:
    """Return a container with one thing in it changed: that at ``keys``, or without any the first tensor.

    Containers on the way are copied; other objects on the way get the new thing as attribute, in a copy.
    """
    if not keys and not isinstance(content, Tensor):
        first = next(iter(named_tensors(content)), None)
        if first is None:
            return change(content)
        return _replaced(content, first[1], change(first[1]))
    if not keys:
        return change(content)
    key, *rest = keys
    try:
        inner = content[key] if not isinstance(key, str) or isinstance(content, Mapping) else getattr(content, key)
    except (LookupError, AttributeError, TypeError):
        raise UsageError(f"{where} has no {key!r}: it is {with_article(type(content).__name__)}") from None
    return _with(content, key, changed_at(inner, tuple(rest), change, where))


def _with(content: Any, key: int | str, new: Any) -> Any:
    """Return a copy of a container or object with another item or attribute."""
    if isinstance(content, tuple):
        items = list(content)
        items[content._fields.index(key) if isinstance(key, str) else key] = new  # type: ignore[attr-defined]
        return type(content)(*items) if hasattr(content, "_fields") else tuple(items)
    twin = copy.copy(content)
    if isinstance(content, (list, dict)) and not (isinstance(key, str) and hasattr(content, "to_tuple")):
        twin[key] = new
    else:
        setattr(twin, key, new) if isinstance(key, str) else twin.__setitem__(key, new)
    return twin


def _replaced(content: Any, old: Tensor, new: Any) -> Any:
    """Return a container with one tensor replaced wherever it is in it."""
    if content is old:
        return new
    if isinstance(content, tuple):
        items = [_replaced(item, old, new) for item in content]
        return type(content)(*items) if hasattr(content, "_fields") else tuple(items)
    if type(content) is list:
        return [_replaced(item, old, new) for item in content]
    if isinstance(content, dict):
        for key, item in content.items():
            other = _replaced(item, old, new)
            if other is not item:
                content = _with(content, key, other)
        return content
    for name, item in dict(getattr(content, "__dict__", {})).items():
        if item is old:
            content = _with(content, name, new)
    return content

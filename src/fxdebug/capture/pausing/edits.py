"""Edits: what calls and operations of a run are given and return is changed while it runs.

An edit is made where a recording notes a result, so that the result counts as that of the call or operation. The
functions of edits are not recorded, gradients go through them.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import op_name
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.errors import UsageError, with_article
from fxdebug.operators.attention import FUSED, SOFTMAX

OUT = "out"
_SLOT = re.compile(r"(out|args|kwargs)((?:\[(?:\d+|'[^']*')\]|\.\w+)*)\Z")
_STEP = re.compile(r"\[(\d+)\]|\['([^']*)'\]|\.(\w+)")
_HEADS = (FUSED, SOFTMAX)


@dataclass(frozen=True)
class Subject:
    """The place of an edit: its ``call``, and the operation in it, if it is one."""

    call: str
    path: str
    number: int
    op: str = ""

    @property
    def name(self) -> str:
        """The id of the operation or call."""
        return f"{self.call}/{self.op}" if self.op else self.call


Change: TypeAlias = Callable[[Any, Subject], Any]


@dataclass(frozen=True)
class Edit:
    """A change of everything that a name fits: a path, the id of a call, or one of these with ``/`` and an operation.

    Names may be globs. ``slot`` is ``out``, ``args`` or ``kwargs``; ``keys`` lead from there to the thing that is
    changed. Without any, that is the first tensor. ``heads`` edits are for the operations of attention inside a call.
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


def slot_of(text: str) -> tuple[str, tuple[int | str, ...]] | None:
    """Return the slot and the keys that a text names; ``None`` if it names none.

    >>> slot_of("args[0]"), slot_of("out.logits"), slot_of("kwargs['mask']"), slot_of("h.3")
    (('args', (0,)), ('out', ('logits',)), ('kwargs', ('mask',)), None)
    """
    found = _SLOT.match(text)
    if found is None:
        return None
    steps = [int(index) if index else key or name for index, key, name in _STEP.findall(found[2])]
    return found[1], tuple(steps)


class Edits:
    """A stepper that makes edits in a run; ``made`` are the places where it did, by the position of the edit."""

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
                    args = self._changed(number, edit, self._subject(frame), args)
                else:
                    kwargs = self._changed(number, edit, self._subject(frame), kwargs)
        return args, kwargs

    def after_call(self, frame: Frame, output: Any) -> Any:
        """Change what a call returns."""
        self._fitting.pop(frame.index, None)
        for number, edit in self._of_calls:
            if edit.slot == OUT and edit.fits_call(frame):
                output = self._changed(number, edit, self._subject(frame), output)
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
        numbered = f"{name}_{count}" if count else name
        for number, edit in fitting:
            fits = name in _HEADS if edit.heads else fnmatchcase(name, edit.op) or fnmatchcase(numbered, edit.op)
            if fits:
                subject = self._subject(self._recorder.frames[call_tape.index], numbered)
                result = self._changed(number, edit, subject, result)
        return result

    def _is_in(self, edit: Edit, frame: Frame | None) -> bool:
        """Is it about operations of this call? The heads of an attention may be computed by a call inside it."""
        while frame is not None:
            if edit.fits_call(frame):
                return True
            frame = frame.parent if edit.heads else None
        return False

    def _subject(self, frame: Frame, op: str = "") -> Subject:
        return Subject(f"{frame.site.path}#{frame.number}", frame.site.path, frame.number, op)

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

    def _changed(self, number: int, edit: Edit, subject: Subject, content: Any) -> Any:
        with self._recorder.unwatched():
            new = changed_at(content, edit.keys, lambda thing: edit.change(thing, subject), subject.name)
        if new is not content:
            self.made.setdefault(number, []).append(subject.name)
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


def without_heads(heads: Sequence[int], to: float | str, result: Tensor) -> Tensor:
    """Return attention weights, or outputs by head, with some heads (the third dimension from the end) set.

    >>> without_heads([1], 0.0, torch.ones(1, 2, 2, 2)).sum(dim=(-1, -2)).tolist()
    [[4.0, 0.0]]
    """
    if result.dim() < 4:
        raise UsageError(f"heads are the third dimension from the end, and this attention made {tuple(result.shape)}")
    count = result.shape[-3]
    wrong = [head for head in heads if not -count <= head < count]
    if wrong:
        raise UsageError(f"there is no head {wrong[0]}: this attention has {count}, 0 to {count - 1}")
    chosen = torch.zeros(count, dtype=torch.bool, device=result.device)
    chosen[list(heads)] = True
    return torch.where(chosen.view(-1, 1, 1), _constant(result, to), result)


def constant_like(out: Any, to: float | str) -> Any:
    """Return a tensor of the same form that holds a number or, with ``"mean"``, its own mean over all but the last dim.

    >>> constant_like(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "mean")
    tensor([[2., 3.],
            [2., 3.]])
    """
    if not isinstance(out, Tensor):
        raise UsageError(f"only a tensor can be ablated, and this is {with_article(type(out).__name__)}")
    return _constant(out, to).expand_as(out).clone()


def _constant(out: Tensor, to: float | str) -> Tensor:
    if to == "mean":
        dims = tuple(range(out.dim() - 1))
        return out.mean(dims, keepdim=True) if dims else out.mean()
    if isinstance(to, str):
        raise UsageError(f"to={to!r}: use a number, or 'mean'")
    return out.new_tensor(to)

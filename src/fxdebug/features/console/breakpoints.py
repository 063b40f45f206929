"""Breakpoints and watched expressions, which stop a run, with their conditions, counts and commands."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fxdebug import api
from fxdebug.data.graphs import VERIFIED
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.features.console.expressions import (
    Expression,
    condition,
    condition_on_inputs,
    is_line_of_where,
    line_or_python,
    shown,
)
from fxdebug.features.console.machine import Machine, NameKind, Stop, Until
from fxdebug.query.names import WILDCARDS

BreakKind: TypeAlias = Literal["path", "class", "operation", "source", "where", "graph", "against"]
KINDS: dict[str, str] = {
    "path": "a call of a module, by its path, its id or a glob: break h.*.attn, break h.0.attn#1",
    "class": "a call of a module, by its class: break GPT2Attention",
    "operation": "an operation, by its name, its id or a glob: break softmax, break h.0.attn#0/softmax",
    "source": "what a line of the code runs: break model.py:12",
    "where": "a result about which a line is true: break nan > 0",
    "graph": "a call whose graph is not verified: break unverified",
    "against": "the first difference from another run: break against runs/good",
}
UNVERIFIED = "unverified"
_SOURCE = re.compile(r"(.+\.py|<.+>):(\d+|\*)$")


@dataclass
class Breakpoint:
    """A breakpoint: where it stops, under which condition, and what is done there.

    ``matches`` is asked at every stop, ``matches_back`` when going back to a place that is no breakpoint, and ``holds``
    (the ``condition``) where these are true. The next ``ignore`` hits do not stop the run. ``commands`` are lines for
    the session.
    """

    number: int
    kind: BreakKind
    text: str
    matches: Until
    matches_back: Until
    condition: str = ""
    holds: Until = lambda stop: True
    temporary: bool = False
    enabled: bool = True
    hits: int = 0
    ignore: int = 0
    commands: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{'temporary ' if self.temporary else ''}breakpoint {self.number}: {self.what}"

    @property
    def what(self) -> str:
        """The place where it stops, and its condition."""
        return f"{self.kind} {self.text}" + (f" if {self.condition}" if self.condition else "")


@dataclass
class Watch:
    """A watched expression, and its value at the stop that was passed last."""

    number: int
    expression: Expression
    last: Any = None
    hits: int = 0

    def __str__(self) -> str:
        return f"watch {self.number}: {self.expression.text}"


class Stoppers:
    """The breakpoints and watches of a session: they move its machine, and say why it stopped."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watches: dict[int, Watch] = {}
        self._numbers = 0
        self._hit: list[Breakpoint] = []

    # Setting and removing --------------------------------------------------------------------------

    def add(self, text: str, *, condition: str = "", temporary: bool = False) -> Breakpoint:
        """Set a breakpoint; see :data:`KINDS` for what ``text`` may be. Raises for a name that the run cannot have."""
        found = self.place(text, condition=condition)
        self._numbers += 1
        found.number, found.temporary = self._numbers, temporary
        self.breakpoints[found.number] = found
        return found

    def place(self, text: str, *, condition: str = "") -> Breakpoint:
        """Return a breakpoint without setting it: a place to move to."""
        kind, name = kind_of(self._machine, text)
        matches = _matcher(self._machine, kind, name, condition)
        found = Breakpoint(0, kind, name, matches, matches)
        if kind == "where":
            found.matches_back = _where_it_became_true(self._machine, name, matches)
        self.set_condition(found, condition)
        return found

    def set_condition(self, found: Breakpoint, condition: str) -> None:
        """Give a breakpoint another condition; an empty one is always true."""
        if condition and found.kind in ("path", "class"):
            found.matches = found.matches_back = _matcher(self._machine, found.kind, found.text, condition)
        found.holds = line_or_python(self._machine, condition) if condition else lambda stop: True
        found.condition = condition

    def watch(self, text: str) -> Watch:
        """Watch an expression: the run stops where its value changes."""
        expression = Expression(self._machine, text)
        expression.require_possible_names()
        self._numbers += 1
        found = self.watches[self._numbers] = Watch(self._numbers, expression, expression.value_or_none())
        return found

    def named(self, text: str) -> Breakpoint:
        """Return the breakpoint of a number. Raises ``UsageError`` for one that there is not."""
        if not text.isdecimal() or int(text) not in self.breakpoints:
            raise UsageError(f"there is no breakpoint {text!r}; {self._known()}")
        return self.breakpoints[int(text)]

    def delete(self, text: str) -> Breakpoint | Watch:
        """Remove the breakpoint or the watch of a number, and return it."""
        number = int(text) if text.isdecimal() else -1
        if number not in self.breakpoints and number not in self.watches:
            raise UsageError(f"there is no breakpoint or watch {text!r}; {self._known()}")
        return self.breakpoints.pop(number) if number in self.breakpoints else self.watches.pop(number)

    def clear(self) -> int:
        """Remove everything, and return how much there was."""
        count = len(self.breakpoints) + len(self.watches)
        self.breakpoints.clear()
        self.watches.clear()
        return count

    def _known(self) -> str:
        numbers = sorted([*self.breakpoints, *self.watches])
        return f"there are {', '.join(map(str, numbers))}" if numbers else "none is set"

    # Moving ----------------------------------------------------------------------------------------

    def move(self, until: Until | None, *, back: bool = False) -> tuple[bool, tuple[str, ...]]:
        """Move the machine to the next stop where ``until`` holds or something here does.

        Return whether something stopped it, and the reasons to tell.
        """
        self._hit = []
        changed: list[str] = []
        active = [one for one in self.breakpoints.values() if one.enabled]

        def stops(stop: Stop) -> bool:
            reached = until is not None and until(stop)
            for one in active:
                if one.matches(stop) and self._counts(one, stop):
                    self._hit.append(one)
                    changed.append(str(one))
            for watch in () if back else watches:
                changed.extend(self._changed(watch))
            return reached or bool(changed)

        watches = list(self.watches.values())
        if back and watches:
            found = self._back_to_a_change(stops, watches, changed)
        else:
            found = (self._machine.backward if back else self._machine.forward)(stops)
        for one in self._hit:
            if one.temporary:
                self.breakpoints.pop(one.number, None)
        return found, tuple(changed)

    def _back_to_a_change(self, stops: Until, watches: list[Watch], changed: list[str]) -> bool:
        """Go back to where ``stops`` holds, or to the operation that changed a watched expression.

        A change is seen one stop before it: there the old value is known, and the machine goes on again by one stop.
        """
        held: list[bool] = []

        def one_before(stop: Stop) -> bool:
            if held and held[-1]:
                return True
            changes = [text for watch in watches for text in self._changed(watch, back=True)] if held else []
            if not held:
                self.arrived()
            if changes:
                changed.extend(changes)
                return True
            held.append(stops(stop))
            return False

        found = self._machine.backward(one_before)
        if found:
            self._machine.forward(lambda stop: True)
        self.arrived()
        return found or (bool(held) and held[-1])

    def arrived(self) -> None:
        """Read the values of watched expressions again, after the machine has jumped."""
        for watch in self.watches.values():
            watch.last = watch.expression.value_or_none()

    def commands_of_hits(self) -> list[str]:
        """Return the commands of the breakpoints that stopped the last movement."""
        return [line for one in self._hit for line in one.commands]

    def _counts(self, one: Breakpoint, stop: Stop) -> bool:
        """Does a match stop the run: the condition holds, and no hits are to be ignored?"""
        if not one.holds(stop):
            return False
        one.hits += 1
        if one.ignore > 0:
            one.ignore -= 1
            return False
        return True

    def _changed(self, watch: Watch, *, back: bool = False) -> Iterator[str]:
        """Yield the old and the new value of a watched expression if it has changed.

        Where it has no value, as a name of another call, it keeps the last one.
        """
        now = watch.expression.value_or_none()
        if now is None:
            return
        before, watch.last = watch.last, now
        if before is not None and not same(before, now):
            watch.hits += 1
            yield _change(watch, *((now, before) if back else (before, now)))


def _change(watch: Watch, old: object, new: object) -> str:
    """Return a change as one line, or as three for tensors."""
    if isinstance(old, Value) or isinstance(new, Value):
        return f"{watch}\n   old  {shown(old)}\n   new  {shown(new)}"
    return f"{watch}: {shown(old)} → {shown(new)}"


def same(old: object, new: object) -> bool:
    """Are two values of a watched expression equal? NaN equals itself; tensors are compared element by element."""
    if old is new:
        return True
    if hasattr(old, "equal") and hasattr(new, "shape"):
        try:
            return type(old) is type(new) and bool(old.equal(new))
        except (RuntimeError, TypeError):
            return False
    try:
        return bool(old == new) or (old != old and new != new)
    except Exception:  # an object whose == raises, or has no single answer
        return False


def split_condition(text: str) -> tuple[str, str]:
    """Return a place and its condition: ``softmax if absmax > 1``.

    >>> split_condition("softmax if absmax > 1"), split_condition("nan > 0")
    (('softmax', 'absmax > 1'), ('nan > 0', ''))

    A condition alone is asked of every operation.

    >>> split_condition("if out.std() > 1")
    ('operation *', 'out.std() > 1')
    """
    place, word, condition = f" {text} ".partition(" if ")
    return place.strip() or ("operation *" if word else ""), condition.strip()


# Kinds of breakpoints ----------------------------------------------------------------------------------------


def kind_of(machine: Machine, text: str) -> tuple[BreakKind, str]:
    """Return the kind of a breakpoint that was typed, and its text without the word for the kind.

    The kind may be named (``break operation relu``). Otherwise it is found: a line of ``where`` by its comparison, a
    source line by its number, a name by what the run has.
    """
    first, _, rest = text.partition(" ")
    words = {"op": "operation", "type": "class", "module": "path"} | {kind: kind for kind in KINDS}
    if first in words and rest.strip():
        kind = words[first]
        return kind, rest.strip()  # type: ignore[return-value]
    if text == UNVERIFIED:
        return "graph", text
    if _SOURCE.fullmatch(text):
        return "source", text
    if re.fullmatch(r"[^\s<>=!]+[#/][^\s<>=!]+", text):
        return _kind_of_id(machine, text), text
    for kind in ("path", "class", "operation"):
        if _matching(machine.known_names(kind), text):  # type: ignore[arg-type]
            return kind, text  # type: ignore[return-value]
    if is_line_of_where(machine, text):
        return "where", text
    if is_id(machine, text):
        return "operation", text
    if text in machine.trace.modules and machine.knows_all_names:
        raise NotFound(f"the module {text!r} was never called in this run")
    every = [name for kind in ("path", "class", "operation") for name in machine.known_names(kind)]  # type: ignore[arg-type]
    near = nearest(text, every)
    if machine.knows_all_names or near or not re.fullmatch(r"[\w.*?\[\]]+", text):
        raise NotFound(f"nothing in this run is called {text!r}.{near}")
    return "operation", text


def _kind_of_id(machine: Machine, text: str) -> BreakKind:
    """Return the kind of the id of a call (``h.0#1``) or an operation (``h.0#1/softmax``); parts may be globs.

    Raises ``NotFound`` for one that the run does not have.
    """
    kind: BreakKind = "operation" if "/" in text else "path"
    call = text.partition("/")[0]
    if machine.knows_all_names and "#" in call and not WILDCARDS & set(text):
        machine.find_stop(text)
    elif not WILDCARDS & set(text):
        path = call.partition("#")[0]
        known = [*machine.known_names("path"), machine.name]
        if path and path not in known:
            raise NotFound(f"nothing in this run is called {text!r}.{nearest(path, known)}")
    return kind


def fits_id(id: str, pattern: str) -> bool:
    """Is an id one that a pattern names? Parts may be globs, and the number of the call or the call may be left out.

    >>> fits_id("h.0#1/softmax", "h.?#1/soft*"), fits_id("h.0#1/add_1", "h.0/add_1"), fits_id("h.0#1/add_1", "add_1")
    (True, True, True)
    """
    if "#" in pattern:
        return _fits(id, pattern)
    call, _, op = id.rpartition("/")
    return _fits(f"{call.partition('#')[0]}/{op}" if "/" in pattern else op, pattern)


def is_id(machine: Machine, name: str) -> bool:
    """Is it an id, or part of one (``softmax_1``), and not the name of a module or an operation?"""
    known = machine.known_names("operation")
    return "#" in name or "/" in name or (name not in known and _unnumbered(name) in known)


def _unnumbered(name: str) -> str:
    """Return the operation of a name in a graph.

    >>> _unnumbered("softmax_1"), _unnumbered("layer_norm")
    ('softmax', 'layer_norm')
    """
    return re.sub(r"_\d+$", "", name)


@functools.lru_cache(maxsize=65_536)
def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern)


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    if not WILDCARDS & set(pattern):
        return [pattern] if pattern in names else []
    return [name for name in names if _fits(name, pattern)]


def _matcher(machine: Machine, kind: BreakKind, text: str, condition: str) -> Until:
    """Return the function that says whether a breakpoint is about a stop."""
    if kind == "path" and "#" in text:
        return _of_calls(lambda stop: fits_id(stop.id, text) or fits_id(stop.call_id, text), condition)
    if kind == "operation" and is_id(machine, text):
        return lambda stop: stop.kind == "op" and fits_id(stop.id, text)
    if kind in ("path", "class", "operation"):
        _require_possible(machine, kind, text)  # type: ignore[arg-type]
    if kind == "path":
        return _of_calls(lambda stop: any(_fits(path, text) for path in stop.paths), condition)
    if kind == "class":
        return _of_calls(lambda stop: _fits(stop.type, text), condition)
    if kind == "operation":
        return lambda stop: stop.kind == "op" and _fits(stop.op, text)
    if kind == "source":
        return _of_source(text)
    if kind == "where":
        return _of_results(machine, text)
    if kind == "graph":
        when = "call" if machine.knows_all_names else "return"  # a live run knows the status afterwards
        return lambda stop: stop.kind == when and stop.status not in (None, VERIFIED)
    return machine.differs_from(api.run_to_compare(text))


def _require_possible(machine: Machine, kind: NameKind, text: str) -> None:
    """Raise ``NotFound`` for a name that the run cannot have."""
    known = machine.known_names(kind)
    if machine.knows_all_names and not _matching(known, text):
        raise NotFound(f"no {kind} of this run is called {text!r}.{nearest(text, known)}")


def _of_calls(matches: Until, condition: str) -> Until:
    """Stop where a call begins; with a condition on the result, where it has ended."""
    when = "return" if condition and _about_result(condition) else "call"
    return lambda stop: stop.kind == when and matches(stop)


_RESULT = re.compile(r"\b(out|output|absmax|mean|std|min|max|nan|inf|posinf|neginf|zeros|finite|count|duration)\b")


def _about_result(condition: str) -> bool:
    """Does a condition mention the result, which is not known where a call begins?

    >>> _about_result("out.abs().max() > 3"), _about_result("nan > 0"), _about_result("input.nan > 0")
    (True, True, False)
    """
    return bool(_RESULT.search(re.sub(r"\b(input|parameter|args\[\d+\]|x)\.\w+", "", condition)))


def _of_source(text: str) -> Until:
    file, _, line = text.replace("\\", "/").rpartition(":")

    def matches(stop: Stop) -> bool:
        if stop.kind == "return" or stop.source is None:
            return False
        name, _, number = stop.source.replace("\\", "/").rpartition(":")
        return (line == "*" or number == line) and (name == file or name.endswith(f"/{file}"))

    return matches


def _of_results(machine: Machine, line: str) -> Until:
    """Stop at an operation about whose result a line is true; at the end of a call whose operations are not known."""
    holds = condition(machine, line)

    def matches(stop: Stop) -> bool:
        if stop.kind == "op":
            return holds(stop)
        return stop.kind == "return" and not machine.has_operations(stop) and holds(stop)

    return matches


def _where_it_became_true(machine: Machine, line: str, matches: Until) -> Until:
    """Stop where a line is true of a result and of no operand."""
    of_inputs = condition_on_inputs(machine, line)
    return lambda stop: matches(stop) and not of_inputs(stop)

"""Expressions of the console: ``print out``, ``watch dtype``, ``break softmax if absmax > 3``, ``print x.abs().max()``.

An expression is about the stop at which the machine stands. It may be

- the name of a tensor: ``out``, ``args[0]``, a name of the graph (``x``, ``softmax``), a weight, a call, an operation;
- a measure or a fact of one: ``absmax``, ``x.nan``, ``h.0.attn.std``, ``args[0].shape``, ``dtype``;
- Python, in which these names are tensors: ``out.abs().max() > 3 * x.std``. It is run as Python, as pdb does it. The
  data of the tensors must be there: on a live run, or in one that was saved with ``values="tensors"``.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves, shape_text
from fxdebug.errors import FxDebugError, LoadError, NotFound, UsageError, nearest
from fxdebug.exports.columns import number
from fxdebug.exports.text import not_finite
from fxdebug.features.console.machine import Machine, Slots, Stop, Until
from fxdebug.printable import printable
from fxdebug.query.measures import OF_TENSORS, Number, Tensor, measures_of
from fxdebug.query.network import Node
from fxdebug.query.node_lookup import node_named
from fxdebug.query.where import ITSELF, Condition, Subject, compile_condition

_FACTS: dict[str, Callable[[Value], object]] = {
    "shape": lambda value: value.shape,
    "dtype": lambda value: value.dtype,
    "device": lambda value: value.device,
    "stride": lambda value: value.stride,
}
_OF_STOP: dict[str, Callable[[Stop], object]] = {
    "op": lambda stop: stop.op or stop.kind,
    "path": lambda stop: stop.path,
    "type": lambda stop: stop.type,
    "status": lambda stop: stop.status,
    "source": lambda stop: stop.source,
    "depth": lambda stop: stop.depth,
}
RESULT = ("out", "output")
_MODULES = ("torch", "math", "self")
_FACT_OF = "_fact_of"  # what an attribute of a place becomes in Python: x.nan is _fact_of("x", "nan")
_PLACE = re.compile(r"[^\s()<>=!+*,]+")
_PART = re.compile(r"(.+)\.(input|output|out|args)((?:\[.+\]|\.\w+)*)")
_FIELD = re.compile(r"([^\[]+?)((?:\[[^\]]+\]|\.\w+)+)")  # part of a result, as in Python: lstm[0], encoder.logits
MOST_SHOWN = 400  # characters of an object that is no tensor


class Expression:
    """An expression, read once and evaluated at any stop. Raises ``UsageError`` for one that cannot be read."""

    def __init__(self, machine: Machine, text: str) -> None:
        self.text = text.strip()
        self._machine = machine
        if not self.text:
            raise UsageError("an expression is missing: a tensor such as out or args[0], a measure such as absmax")
        self._known: dict[str, Slots] = {}  # results elsewhere in the run: those of a recorded one never change
        self._code = None if _PLACE.fullmatch(self.text) else _compiled(self.text)
        self._python = self._code or _python_of_place(self.text)

    def value(self, frame: Stop | None = None, *, hints: bool = True) -> Any:
        """Return the value at the present stop; in a frame that was selected, names are those of its call.

        ``hints=False`` leaves out the nearest names in an error: finding them takes longer than the value.
        Raises ``NotFound`` for a name that has no value here, ``LoadError`` for data that was not kept.
        """
        scope = Scope(self._machine, frame, self._known if self._machine.knows_all_names else None, hints)
        if self._code is None:
            found = scope.named(self.text)
            if found is not None:
                return found
            if self._python is None:
                raise scope.unknown(self.text)
            try:
                return scope.evaluate(self._python)
            except LoadError:  # an attribute of data that is not there, such as a field that this result does not have
                if isinstance(scope.named(self.text.partition("[")[0]), Value):
                    raise
                raise scope.unknown(self.text) from None
        return scope.evaluate(self._code)

    def value_or_none(self) -> Any:
        """Return the value at the present stop, ``None`` where it has none or the expression raises."""
        try:
            return self.value(hints=False)
        except Exception:
            return None

    def require_possible_names(self) -> None:
        """Raise ``NotFound`` for a name that has a value nowhere in the run; a live run may still get others."""
        scope = Scope(self._machine)
        if not self._machine.knows_all_names or (self._code is None and scope.named(self.text) is not None):
            return
        known = {"args", "kwargs", "torch", "math", *RESULT, "input", *scope.names(), *dir(builtins)}
        known.update(names_in_graphs(self._machine.trace))
        if self._code is None and self.text in measures_of(self._machine.trace):
            return
        place, _, field = self.text.rpartition(".")
        of_data = place.partition(".")[0].partition("[")[0] not in RESULT  # results differ from stop to stop
        if self._code is None and place and of_data and self._machine.trace.settings.get("values") != "tensors":
            near = nearest(field, [*OF_TENSORS, *_FACTS])  # without data, a tensor has no other attributes
            raise NotFound(f"nothing in this run is called {self.text!r}.{near}")
        used = [node.id for node in ast.walk(ast.parse(self.text, mode="eval")) if isinstance(node, ast.Name)]
        for name in used:
            if name not in known:
                raise NotFound(f"no tensor or measure of this run is called {name!r}.{nearest(name, known)}")


def names_in_graphs(trace: TraceData) -> set[str]:
    """Return the names that a tensor of some call has: those of the graphs, and of arguments."""
    found = {name for graph in trace.graphs for step in graph.ops for name in (step.name, step.target)}
    return found | {slot for call in trace.calls for slot in call.inputs.slots}


class Scope:
    """The names that an expression can use at the present stop of a machine, in one frame."""

    def __init__(
        self, machine: Machine, frame: Stop | None = None, known: dict[str, Slots] | None = None, hints: bool = True
    ) -> None:
        self._machine = machine
        self._known, self._hints = known, hints
        self._several: NotFound | None = None  # a name that was looked up is that of several calls
        self._frame = machine.frames[-1] if frame is None else frame
        inside = self._frame.call_id == machine.stop.call_id
        self._stop = machine.stop if inside else self._frame

    def named(self, text: str) -> Any:
        """Return the tensor, measure or fact with this name; ``None`` if there is none here."""
        if text in _OF_STOP:
            return _OF_STOP[text](self._stop)
        if text in _FACTS:
            value = _first(self._stop.results or self._stop.inputs)
            return None if value is None else _FACTS[text](value)
        if text in OF_TENSORS:
            value = _first(self._stop.results)
            return None if value is None else _fact(value, text, RESULT[0])
        base, field = _measure_of_place(text)
        here = self._here(base) if base else ()
        found = here or self.place(text)  # a long run is searched last
        if found and not here:
            return found[0][1] if len(found) == 1 else found
        found = found or (self._somewhere(base) if base else ())
        if found:
            return _fact(found[0][1], field, base)
        return self._stop.number_of(text) if text in measures_of(self._machine.trace) else None

    def place(self, text: str) -> Slots:
        """Return the tensors of a place by slot; none for an unknown one."""
        return self._here(text) or self._somewhere(text)

    def _somewhere(self, text: str) -> Slots:
        """Return the tensors of a place elsewhere in the run, which are looked for once where it is over."""
        if self._known is None:
            return self._elsewhere(text)
        if text not in self._known:
            self._known[text] = self._elsewhere(text)
        return self._known[text]

    def _here(self, text: str) -> Slots:
        """Return the tensors that a name has at the stop and in its call, or a weight."""
        for name in RESULT:
            if text == name or text.startswith((f"{name}.", f"{name}[")):
                slot = text[len(name) :].removeprefix(".")
                results = [(own, value) for own, value in self._stop.results if not slot or own == slot]
                return results or _indexed(self._stop.results, slot)
        if text == "input":
            return list(self._stop.inputs)[:1]
        given = [(slot, value) for slot, value in self._stop.inputs if slot == text]
        if given:
            return given
        weight = self._machine.weight(text) if "." in text else None
        here = weight or self._machine.value(self._frame, text) or self._machine.weight(text)
        return [] if here is None else [(text, self._machine.now(here))]

    def _elsewhere(self, text: str) -> Slots:
        """Return the results of a call or an operation of the run, by its path or id, or one: ``h.0.output[0]``."""
        part = _PART.fullmatch(text)
        if part is not None:
            return self._part(*part.groups())
        node = self._node(text)
        if node is not None:
            return list(leaves(node.item))
        field = _FIELD.fullmatch(text)
        return [] if field is None else self._part(field[1], "output", field[2], whole=False)

    def _node(self, name: str) -> Node | None:
        """Return a call or an operation of the run, or of this call; ``None`` for a name that is none.

        Several calls of one module are none either, but for ``hints``: the error names them.
        """
        trace = self._machine.trace
        try:
            found = node_named(trace, name)
        except NotFound as error:
            self._several = error
            return None
        except FxDebugError:
            return None
        return found or (None if "/" in name else node_named(trace, f"{self._frame.id}/{name}"))

    def _part(self, name: str, side: str, slot: str, *, whole: bool = True) -> Slots:
        """Return the tensors that a call was given or returned, or one of them; those inside a slot if ``whole``."""
        node = self._node(name)
        if node is None:
            return []
        call = node.call if node.kind == "call_module" else None
        if side in ("input", "args"):
            found = list(call.inputs.named()) if call is not None else []
        else:
            found = [(own, value) for own, value in leaves(node.item)]
        slots = (slot, f"args{slot}", slot.removeprefix("."))
        named = [(own, value) for own, value in found if own in slots]
        if not named and slot and whole:
            named = [(own, value) for own, value in found if own.startswith(tuple(f"{one}[" for one in slots))]
        if not slot or named:
            return named or found
        return _indexed(found, slot) if whole or any(own for own, _ in found) else []  # else into the tensor

    def fact_of(self, place: str, field: str) -> Any:
        """Return a measure or a fact of the first tensor of a place."""
        value = _first(self.place(place))
        if value is None:
            raise self.unknown(place)
        return _fact(value, field, place)

    def evaluate(self, code: CodeType) -> Any:
        """Run Python, with the names that it uses."""
        names: dict[str, Any] = {_FACT_OF: self.fact_of, "math": math}
        objects = self._machine.objects(self._frame)
        for name in _names_in(code):
            if name in names:
                continue
            if name in objects:
                names[name] = objects[name]
            elif name == "torch":
                names[name] = __import__("torch")
            else:
                self._add(names, name)
        try:
            with self._machine.evaluating():
                return eval(code, names)
        except NameError as error:
            raise self.unknown(str(error.name)) from None

    def _add(self, names: dict[str, Any], name: str) -> None:
        """Add a name to those of a Python expression: numbers as they are, tensors with their data."""
        if name == "args":
            given = [value for slot, value in self._stop.inputs if slot.startswith("args[")]
            names[name] = [self._machine.tensor(value) for value in given]
            return
        if name == "kwargs":
            others = [(slot, value) for slot, value in self._stop.inputs if not slot.startswith("args[")]
            names[name] = {slot: self._machine.tensor(value) for slot, value in others}
            return
        found = self.named(name)
        if isinstance(found, Value):
            names[name] = self._machine.tensor(found)
        elif isinstance(found, (list, tuple)) and found and isinstance(found[0], tuple):
            names[name] = [self._machine.tensor(value) for _, value in found]
        elif found is not None:
            names[name] = found

    def unknown(self, name: str) -> NotFound:
        """Return the error for a name that has no value here."""
        of_result = name in OF_TENSORS or name in _FACTS or name.split(".")[0].split("[")[0] in RESULT
        if of_result and not self._stop.results:
            what = "this call has not ended" if self._stop.kind == "call" else "it returned no tensor"
            return NotFound(f"{name} is not known here: {what}")
        if self._several is not None:
            return self._several
        if name.split("[")[0].split(".")[0] in RESULT and len(self._stop.results) > 1:
            here = ", ".join(f"out{slot}" if slot.startswith("[") else f"out.{slot}" for slot, _ in self._stop.results)
            return NotFound(f"{name!r} has no value here: the results are {here[:200]}")
        known = [*self.names(), *self._machine.known_names("path")] if self._hints else []
        near = nearest(_measure_of_place(name)[0] or name, known)
        return NotFound(f"{name!r} has no value here.{near} inspect shows the tensors, where the calls")

    def names(self) -> list[str]:
        """Return the names of tensors and facts that have a value here."""
        slots = [slot for slot, _ in self._stop.inputs if slot]
        own = [*RESULT[:1], *slots, *self._machine.values(self._frame), *_FACTS, *_OF_STOP, *OF_TENSORS]
        return list(dict.fromkeys(own))


@functools.lru_cache(maxsize=256)
def _names_in(code: CodeType) -> tuple[str, ...]:
    """Return the names that code looks up, without those of attributes."""
    own = [step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_NAME", "LOAD_GLOBAL")]
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names_in(const)]
    return tuple(dict.fromkeys([*own, *inner]))


def _measure_of_place(text: str) -> tuple[str, str]:
    """Return the place and the measure or fact of ``h.0.attn.std``; an empty place for a text that is no such thing."""
    place, _, field = text.rpartition(".")
    return (place, field) if field in OF_TENSORS or field in _FACTS else ("", "")


def _fact(value: Value, field: str, place: str) -> Any:
    """Return a measure or a fact of a tensor. Raises ``NotFound`` where it has none, with the reason."""
    if field in _FACTS:
        return _FACTS[field](value)
    found = OF_TENSORS[field](value)
    if found is None and value.stats is None:
        why = "the run took no statistics of weights: weights=True does" if value.name else "it was not measured"
        raise NotFound(f"{place}.{field} is not known, {value.label}: {why}")
    if found is None:
        raise NotFound(f"{place} has no {field}: it is {value.label}")
    return found


def _first(slots: Slots) -> Value | None:
    return slots[0][1] if slots else None


def _indexed(results: Slots, slot: str) -> Slots:
    """Return the result at a position, for results that have names: ``out[0]``."""
    position = slot[1:-1] if slot.startswith("[") and slot.endswith("]") else ""
    if position.isdecimal() and int(position) < len(results):
        return [results[int(position)]]
    return []


def _python_of_place(text: str) -> CodeType | None:
    """Return the code of a text that may be Python, such as ``out.shape[0]``; ``None`` for one that is a place only."""
    place, _ = _measure_of_place(text)
    if text in OF_TENSORS or text in _FACTS or (place and place.partition(".")[0] not in _MODULES):
        return None
    try:
        return _compiled(text)
    except UsageError:
        return None


def _compiled(text: str) -> CodeType:
    """Return the code of a Python expression, in which measures of places are looked up and not computed."""
    try:
        tree = _Facts().visit(ast.parse(text, mode="eval"))
        return compile(ast.fix_missing_locations(tree), "<fxdebug>", "eval")
    except SyntaxError as error:
        raise UsageError(f"{text!r} is not an expression: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{text[:60]!r} cannot be read: {error}") from None


class _Facts(ast.NodeTransformer):
    """Turns ``x.nan`` into a look-up; ``x.max()`` stays a method of the tensor."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr not in OF_TENSORS or not _is_of_place(node):
            return self.generic_visit(node)
        return self._looked_up(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        whole = node.value
        if isinstance(whole, ast.Attribute) and whole.attr == "shape" and _is_of_place(whole):
            node.value, node.slice = self._looked_up(whole), self.visit(node.slice)  # x.shape[0] needs no data
            return node
        return self.generic_visit(node)

    def _looked_up(self, node: ast.Attribute) -> ast.expr:
        words: list[ast.expr] = [ast.Constant(ast.unparse(node.value)), ast.Constant(node.attr)]
        return ast.Call(ast.Name(_FACT_OF, ast.Load()), words, [])


def _is_of_place(node: ast.Attribute) -> bool:
    """Is it an attribute of what may be a place, not of what a call or an operator makes, or of a module?"""
    root: ast.expr = node.value
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    return isinstance(root, ast.Name) and root.id not in _MODULES


# Conditions ----------------------------------------------------------------------------------------------------


def condition(machine: Machine, line: str) -> Until:
    """Return the condition of a ``where`` line: true of a stop if it is true of some of its tensors."""
    compiled = compile_condition(line, measures_of(machine.trace))
    if compiled.tensors == ("output",):  # most lines: a long run asks them at every stop
        evaluate = compiled.evaluate
        return lambda stop: any(evaluate({"output": value, ITSELF: stop.number_of}) for _, value in stop.results)
    needs_inputs = compiled.mentions("input")

    def holds(stop: Stop) -> bool:
        inputs = _values(stop.inputs, weights=stop.kind != "op") if needs_inputs else []
        return compiled.match(_subject(machine, stop, compiled, _values(stop.results), inputs)) is not None

    return holds


def condition_on_inputs(machine: Machine, line: str) -> Until:
    """Return the same condition asked about what went into a stop, as if it were the result."""
    compiled = compile_condition(line, measures_of(machine.trace))
    if compiled.mentions("input"):
        return lambda stop: False  # it speaks of both

    def holds(stop: Stop) -> bool:
        return compiled.match(_subject(machine, stop, compiled, _values(stop.inputs), [])) is not None

    return holds


def _values(slots: Slots, *, weights: bool = True) -> list[Value]:
    return [value for _, value in slots if weights or value.name is None]


def _subject(
    machine: Machine, stop: Stop, compiled: Condition, outputs: Sequence[Value], inputs: Sequence[Value]
) -> Subject:
    own = _weights(machine, stop) if compiled.mentions("parameter") else ()
    return Subject(outputs, inputs, own, stop.number_of)


def _weights(machine: Machine, stop: Stop) -> list[Tensor]:
    """Return the weights that a stop is about: operands of an operation, those of the module of a call."""
    if stop.kind == "op":
        return [value for _, value in stop.inputs if value.name is not None]
    paths = set(stop.paths)
    return [one for one in machine.trace.parameters if any(name.rpartition(".")[0] in paths for name in one.names)]


def is_line_of_where(machine: Machine, text: str) -> bool:
    """Is a text a line of ``where``: a comparison of measures?"""
    try:
        line: Condition = compile_condition(text, measures_of(machine.trace))
    except UsageError:
        if re.search(r"[<>]|[=!]=|\b(and|or|not)\b", text):
            raise
        return False
    return bool(line.names) and bool(re.search(r"[<>]|[=!]=", text))


def line_or_python(machine: Machine, text: str) -> Until:
    """Return the condition of a breakpoint: a line of ``where``, else Python at the present stop of the machine.

    Raises ``UsageError`` for a text that is neither, ``NotFound`` for one with names that the run cannot have.
    """
    try:
        return condition(machine, text)
    except UsageError:
        expression = Expression(machine, text)
    expression.require_possible_names()

    def holds(stop: Stop) -> bool:
        try:
            return bool(expression.value(hints=False))
        except NotFound:  # nothing of that name here: a result before the call has ended
            return False

    return holds


# Text -----------------------------------------------------------------------------------------------------------


def shown(value: object) -> str:
    """Return a value of an expression in one line.

    >>> shown(0.1), shown((2, 3)), shown(None)
    ('0.1', '2×3', 'None')
    """
    if isinstance(value, Value):
        return value_line(value)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        more = f" and {len(value) - 1} more" if len(value) > 1 else ""
        return value_line(value[0][1]) + more
    if isinstance(value, tuple) and value and all(isinstance(size, int) for size in value):
        return shape_text(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(" ".join(repr(value).split()) if not isinstance(value, str) else value)[:MOST_SHOWN]


def value_line(value: Tensor) -> str:
    """Return a tensor in one line: dtype and shape, the name of a weight, the statistics that matter most."""
    name = [value.name] if value.name else []
    return "  ".join([f"{value.dtype}[{', '.join(map(str, value.shape))}]", *name, *_statistics(value)])


def _statistics(value: Tensor) -> Iterator[str]:
    stats = value.stats
    if stats is None:
        return
    if stats.finite < stats.count:
        yield not_finite(stats)
    for name in ("mean", "std", "min", "max"):
        one: Number = getattr(stats, name)
        if one is not None:
            yield f"{name} {number(one)}"

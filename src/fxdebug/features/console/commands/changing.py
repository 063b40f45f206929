"""Commands that change the run: set, ablate, patch, undo; and replay, which runs one call again on other inputs.

They are Python of the user's own program, on a live run: ``set`` evaluates an expression in the paused forward.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fxdebug import api
from fxdebug.data.values import Value
from fxdebug.errors import UsageError, nearest
from fxdebug.features.console.expressions import Expression
from fxdebug.features.console.session import Session
from fxdebug.plugins.console import command

if TYPE_CHECKING:
    from fxdebug.features.console.live import LiveMachine

GROUP = "change"
_AUGMENTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
}
_HEADS = re.compile(r"\bheads?\s+([\d,\s]+)")


@command("set", "TARGET = EXPR", group=GROUP, completes="expression")
def set_(session: Session, argument: str) -> None:
    """Change a value from here on: set out *= 0, set out[:, 3] = 1, set args[0] = x + 1, set mask = None.

    TARGET is out, behind an operation, at the end of a call or at a gradient, and an argument where a call begins:
    args[0], kwargs['mask'] or its name. EXPR is Python, run in the paused forward, so that gradients go through it.
    """
    machine = _live(session)
    target, change = _assignment(session, argument)
    slot, keys, index = _place(machine, target)

    def changed(thing: Any) -> Any:
        machine.bound = {"out": thing} if slot == "out" and not keys else {}
        try:
            return change(thing, index)
        finally:
            machine.bound = {}

    machine.run.pauses.replace(slot, keys, changed)
    session.show_stop()


@command("ablate", "[PLACE] [head N …] [to mean|NUMBER]", group=GROUP, completes="place")
def ablate(session: Session, argument: str) -> None:
    """Set the result of the present stop to zero, or that of every call of PLACE from now on; or heads of an attention.

    With "to mean", it is set to its mean over all but the last dimension, with a number to that.
    """
    machine = _live(session)
    place, to_word, to_text = f" {argument} ".partition(" to ")
    to = _number_or_mean(to_text.strip()) if to_word else 0.0
    heads = _HEADS.search(place)
    name = place[: heads.start()].strip() if heads else place.strip()
    if heads:
        numbers = tuple(int(number) for number in re.findall(r"\d+", heads[1]))
        _add(session, machine, api.edit_of(name or machine.stop.path, api.ablate(heads=numbers, to=to)))
    elif name:
        _add(session, machine, api.edit_of(name, api.ablate(to=to)))
    else:
        machine.run.pauses.replace("out", (), lambda out: api.constant_like(out, to))
        session.show_stop()


@command("patch", "RUN [PLACE] [at INDEX]", group=GROUP, completes="file")
def patch(session: Session, argument: str) -> None:
    """Put the value of another run in the place of the present result, or of that of PLACE from now on.

    RUN is the folder of a run that kept its tensors. INDEX chooses a part, as in tensor[INDEX]: patch RUN h.3 at :, -1
    """
    machine = _live(session)
    before, _, index_text = argument.partition(" at ")
    folder, _, place = before.strip().partition(" ")
    if not folder:
        raise UsageError("patch needs the folder of a run: patch runs/clean h.3")
    index = eval(f"_[{index_text}]", {"_": _Index()}) if index_text.strip() else None
    change = api.patch(api.load(folder), index=index)
    if place.strip():
        _add(session, machine, api.edit_of(place.strip(), change))
        return
    edit = api.edit_of(machine.stop.id, change)
    machine.run.pauses.replace("out", (), lambda out: edit.change(out, machine.run.place))
    session.show_stop()


@command("undo", "", group=GROUP)
def undo(session: Session, argument: str) -> None:
    """Take back the last change at the present stop, else the last ablate or patch of a place still to come."""
    machine = _live(session)
    pauses = machine.run.pauses
    if pauses.undo():
        session.show_stop()
    elif pauses.edits:
        removed = pauses.edits[-1]
        pauses.set_edits(pauses.edits[:-1])
        session.screen.line(f"{removed.name} is no longer changed")
    else:
        raise UsageError("nothing was changed here; what has gone on cannot be taken back")


@command("replay", "PATH [with NAME = EXPR, …]", group=GROUP, completes="place")
def replay(session: Session, argument: str) -> None:
    """Run the verified graph of one call again on changed inputs or results, and compare: no other call runs.

    NAME is an argument of the forward, or an operation of the graph (ops lists them): replay h.3.mlp with x = x * 2.
    The run must be over, and have kept its tensors.
    """
    path, _, text = argument.partition(" with ")
    if not path.strip():
        raise UsageError("replay needs a call: replay h.3.mlp with hidden_states = hidden_states * 0")
    changes: dict[str, Callable[[Any], Any]] = {}
    for name, expression in _assignments(text):
        changes[name] = _change_of(name, expression)
    comparison = api.replay(session.trace, path.strip(), changes)
    session.screen.lines(comparison.text(width=session.screen.width, color=session.screen.color))


def _assignments(text: str) -> list[tuple[str, str]]:
    """Return the names and expressions of ``x = x * 2, mask = None``."""
    if not text.strip():
        return []
    try:
        call = ast.parse(f"_({text})", mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"{text!r} cannot be read: {error.msg}. Write NAME = EXPR, with commas between") from None
    assert isinstance(call, ast.Call)
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise UsageError(f"{text!r}: write NAME = EXPR, with commas between")
    return [(str(keyword.arg), ast.unparse(keyword.value)) for keyword in call.keywords]


def _change_of(name: str, expression: str) -> Callable[[Any], Any]:
    def change(thing: Any) -> Any:
        import torch

        return eval(expression, {"torch": torch, name: thing, "out": thing})

    return change


# Behind the commands ---------------------------------------------------------------------------------------------


def _live(session: Session) -> LiveMachine:
    """Return the machine, where something can be changed. Raises ``UsageError`` elsewhere."""
    machine: Any = session.machine
    if not hasattr(machine, "require_present"):
        raise UsageError("a recorded run cannot be changed: fxdebug debug FILE.py:factory runs the model")
    machine.require_present()
    return machine  # type: ignore[no-any-return]


def _add(session: Session, machine: LiveMachine, edit: Any) -> None:
    known = machine.known_names("path")
    place = edit.call.partition("#")[0]
    if place not in known and not any(sign in place for sign in "*?["):
        raise UsageError(f"no call of this model is named {place!r}.{nearest(place, known)}")
    machine.run.pauses.set_edits([*machine.run.pauses.edits, edit])
    session.screen.line(f"{edit.name or 'the model'} is changed from now on; undo takes it back")


def _number_or_mean(text: str) -> float | str:
    if text == "mean":
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"to {text!r}: use a number, or mean") from None


class _Index:
    def __getitem__(self, index: object) -> object:
        return index


def _assignment(session: Session, text: str) -> tuple[ast.expr, Callable[[Any, Any], Any]]:
    """Return the target of an assignment, and the function that makes the new thing of the old one and an index."""
    try:
        (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        raise UsageError(f"{text!r} is no assignment: set out *= 0, set args[0] = args[0] + 1") from None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, combine = statement.targets[0], None
    elif isinstance(statement, ast.AugAssign) and type(statement.op) in _AUGMENTED:
        target, combine = statement.target, _AUGMENTED[type(statement.op)]
    else:
        raise UsageError(f"{text!r} is no assignment: set out *= 0, set args[0] = args[0] + 1")
    literal = isinstance(statement.value, ast.Constant)  # 0 is a number here, and no module of a Sequential
    expression = Expression(session.machine, ast.unparse(statement.value))

    def change(thing: Any, index: Any) -> Any:
        value = ast.literal_eval(statement.value) if literal else expression.value()
        if isinstance(value, Value):
            value = session.machine.tensor(value)
        old = thing if index is None else thing[index]
        new = value if combine is None else combine(old, value)
        if index is not None:
            whole = thing.clone()
            whole[index] = new
            return whole
        is_number = isinstance(new, (int, float)) and not isinstance(new, bool) and hasattr(thing, "new_tensor")
        return api.constant_like(thing, new) if is_number else new

    return target, change


def _place(machine: LiveMachine, target: ast.expr) -> tuple[str, tuple[int | str, ...], Any]:
    """Return the slot, the keys and the index into a tensor that the target of an assignment names."""
    steps: list[Any] = []
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        steps.append(target.attr if isinstance(target, ast.Attribute) else target.slice)
        target = target.value
    steps.reverse()
    if not isinstance(target, ast.Name):
        raise UsageError("set changes out, args[0], kwargs['name'], or an argument by its name")
    slot, content = target.id, machine.run.pauses.content
    is_call = machine.stop.kind == "call"
    if is_call and slot not in ("args", "kwargs"):
        slot, first = _argument(machine, slot)
        steps.insert(0, first)
    if is_call != (slot in ("args", "kwargs")) or (not is_call and slot != "out"):
        here = "args[0] or an argument by its name: the call begins" if is_call else "out"
        raise UsageError(f"{ast.unparse(target)!r} does not go on from here; what does is {here}")
    thing: Any = content if not is_call else content[0] if slot == "args" else content[1]
    keys: list[int | str] = []
    for place, step in enumerate(steps):
        if hasattr(thing, "new_tensor"):
            return slot, tuple(keys), _evaluated_index(steps[place:])
        key = _constant(step)
        if slot == "kwargs" and not keys and key not in thing:
            return slot, (key,), None
        try:
            thing = thing[key] if not isinstance(key, str) or hasattr(thing, "keys") else getattr(thing, key)
        except (LookupError, AttributeError, TypeError):
            raise UsageError(f"there is no {key!r} in what goes on from here") from None
        keys.append(key)
    if is_call and not keys:
        raise UsageError("set one argument: set args[0] = …")
    return slot, tuple(keys), None


def _argument(machine: LiveMachine, name: str) -> tuple[str, Any]:
    """Return where an argument is, by its name in the forward."""
    args, kwargs = machine.run.pauses.content
    if name in kwargs:
        return "kwargs", name
    names = machine.run.argument_names(machine.stop)
    if name in names and names.index(name) < len(args):
        return "args", names.index(name)
    if name in names:
        return "kwargs", name  # it has its default here
    raise UsageError(f"{name!r} is no argument of this call.{nearest(name, [*names, *kwargs])}")


def _constant(step: Any) -> int | str:
    if isinstance(step, (int, str)):
        return step
    found = ast.literal_eval(step) if isinstance(step, (ast.Constant, ast.UnaryOp)) else None
    if not isinstance(found, (int, str)):
        raise UsageError(f"[{ast.unparse(step)}] is no key: use a number or a text")
    return found


def _evaluated_index(steps: list[Any]) -> Any:
    if len(steps) != 1 or isinstance(steps[0], str):
        raise UsageError("set one part of a tensor with one index: set out[:, 3] = 0")
    if isinstance(steps[0], int):
        return steps[0]
    whole = ast.Expression(ast.Subscript(ast.Name("_", ast.Load()), steps[0], ast.Load()))
    return eval(compile(ast.fix_missing_locations(whole), "<fxdebug>", "eval"), {"_": _Index()})

"""Graph templates that were proven for a class, kept for its next instances.

Templates are kept by class, forward and training flag, and found by the outline of a tape: what its operations are and
which constants they have. A class may have very many: each convolution of a network has other strides and groups. A
template of a module with other traits is not tried: an attribute may decide something that leaves no mark on the tape
(a setting around an operation, a variable around a call, a constant that only another run would show).

Beside the proven ones is, for each module, the template of a tape that could not be traced. A call of this module that
does the same again has the same graph for the same reason, and is not traced once more.
"""

from __future__ import annotations

import dis
import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.graphs.symbolic_size import Size
from fxdebug.capture.graphs.template import Attribute, GraphTemplate
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.replay.introspect import attributes_of
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import ATOMS, OpaqueArg, Struct, leaves_in
from fxdebug.capture.tape.in_place import handed_on, written_in
from fxdebug.capture.torch_state.whose_code import is_part_of

ENTRIES_PER_CLASS = 20_000  # of all templates of a class, forward and training flag: the oldest ones go first
MOST_MODULES = 10_000  # whose template is remembered: in a long process modules come and go

_known: weakref.WeakKeyDictionary[type, dict[Any, _Templates]] = weakref.WeakKeyDictionary()


def templates_of(tape: CallTape) -> Iterator[tuple[GraphTemplate, Callable[[CallTape, GraphTemplate], None]]]:
    """Yield the templates that may hold for a call, the likeliest first, each with a callback if it does."""
    known = _of_forward(tape)
    if known is not None:
        traits, hooks, sizes = known.traits_of(tape.module), hooks_of(tape), tape.sizes_given
        for template in known.of(tape):
            if template.traits == traits and template.hooks == hooks and template.given_sizes == sizes:
                yield template, known.note


def remember(tape: CallTape, template: GraphTemplate) -> None:
    """Keep a template that was proven for this call, unless it names a module or tensor by identity.

    What a body sets around its calls is on no tape: a template with such is for one call.
    """
    template.traits, template.hooks = traits_of(tape.module), hooks_of(tape)
    template.written, template.numbers = written_in(handed_on(tape)), _numbers_read(tape)
    handed = [each for given in template.handed_over.values() for each in given]
    if (
        template.for_class
        and not template.switched
        and not any(each.is_registered for each in handed)
        and not any(isinstance(entry.what, nn.Module) for entry in template.entries)
    ):
        known = _templates_for(tape)
        known.add(tape, template)
        known.note(tape, template)


def names_as_proven(template: GraphTemplate, tape: CallTape) -> bool:
    """Do the names of tensors in a template that matches a tape hold for this call, too?

    Where an operation returns its argument, the tape does not tell which of the two is used later, and the body's
    Python might choose by a number. What an operation wrote to has its new numbers under each name.
    """
    results = handed_on(tape)
    if written_in(results) != template.written:
        return False
    return not results or template.numbers == _numbers_read(tape)


def remember_untraced(tape: CallTape, recorded: GraphTemplate, reason: ReasonText) -> None:
    """Keep the template of a tape whose body could not be traced, and the reason, for further calls of its module."""
    if not any(isinstance(entry.what, nn.Module) for entry in recorded.entries) and _names_all(recorded):
        recorded.traits = traits_of(tape.module)
        known = _templates_for(tape)
        known.note_untraced(tape.module, recorded, reason)


def untraced_of(tape: CallTape) -> tuple[GraphTemplate, ReasonText] | None:
    """Return what :func:`remember_untraced` kept for the module of a tape: the template may hold for it, or not."""
    known = _of_forward(tape)
    found = None if known is None else known.untraced(tape.module)
    return None if found is None or found[0].traits != traits_of(tape.module) else found


def _names_all(template: GraphTemplate) -> bool:
    """Has every tensor that does not come from the arguments a name? One without matches in no other run."""
    codes = [template.out, *[part for entry in template.entries for part in (entry.args, entry.kwargs)]]
    return all(leaf.name is not None for code in codes for leaf in leaves_in(code) if type(leaf) is Attribute)


def forget_templates() -> None:
    """Start afresh: the next run traces every class anew (for measurements and tests)."""
    _known.clear()


def _key(tape: CallTape) -> tuple[Any, bool]:
    return getattr(tape.forward, "__func__", tape.forward), bool(tape.module.training)


def _of_forward(tape: CallTape) -> _Templates | None:
    of_class = _known.get(type(tape.module))
    return None if of_class is None else of_class.get(_key(tape))


def _templates_for(tape: CallTape) -> _Templates:
    """Return the templates of a tape's forward, to add one."""
    kind = type(tape.module)
    return _known.setdefault(kind, {}).setdefault(_key(tape), _Templates(is_of_torch=_is_of_torch(kind)))


class _Templates:
    """Templates of one forward, by outline, and the last one that matched a module, by the ``id`` of the module.

    The id is a hint only, as Python reuses ids.
    """

    def __init__(self, *, is_of_torch: bool) -> None:
        self._is_of_torch = is_of_torch
        self._by_outline: dict[Any, list[GraphTemplate]] = {}
        self._oldest: deque[tuple[Any, GraphTemplate]] = deque()
        self._entries = 0
        self._last: dict[int, GraphTemplate] = {}
        self._untraced: dict[int, tuple[Identity, GraphTemplate, ReasonText]] = {}

    def traits_of(self, module: nn.Module) -> tuple[Any, ...]:
        """Return the traits of a module of the class that these templates are for."""
        return () if self._is_of_torch and not module._modules else traits_of(module)

    def of(self, tape: CallTape) -> Iterator[GraphTemplate]:
        """Yield the last one for the module, then those of the same outline: with the same numbers, then with sizes."""
        last = self._last.get(id(tape.module))
        if last is not None:
            yield last
        for with_numbers in (True, False):
            for template in self._by_outline.get(_outline(tape, with_numbers), ()):
                if template is not last:
                    yield template

    def note(self, tape: CallTape, template: GraphTemplate) -> None:
        """Note that a template matched a call: it is tried first for this module."""
        if self._last.get(id(tape.module)) is template:
            return
        if len(self._last) >= MOST_MODULES:
            self._last.clear()
        self._last[id(tape.module)] = template

    def note_untraced(self, module: nn.Module, recorded: GraphTemplate, reason: ReasonText) -> None:
        """Note the template of a tape of a module that could not be traced."""
        if len(self._untraced) >= MOST_MODULES:
            self._untraced.clear()
        self._untraced[id(module)] = Identity(module), recorded, reason

    def untraced(self, module: nn.Module) -> tuple[GraphTemplate, ReasonText] | None:
        """Return what was noted for a module."""
        found = self._untraced.get(id(module))
        return None if found is None or found[0] != Identity(module) else found[1:]

    def add(self, tape: CallTape, template: GraphTemplate) -> None:
        """Add the template of a call, as the first of its outline."""
        outline = _outline(tape, with_numbers=not _has_sizes(template))
        self._by_outline.setdefault(outline, []).insert(0, template)
        self._oldest.append((outline, template))
        self._entries += len(template.entries) + 1
        while self._entries > ENTRIES_PER_CLASS and len(self._oldest) > 1:
            self._remove(*self._oldest.popleft())

    def _remove(self, outline: Any, template: GraphTemplate) -> None:
        self._entries -= len(template.entries) + 1
        others = [other for other in self._by_outline[outline] if other is not template]
        if others:
            self._by_outline[outline] = others
        else:
            del self._by_outline[outline]
        self._last = {module: last for module, last in self._last.items() if last is not template}


# The outline of a tape ---------------------------------------------------------------------------


def _outline(tape: CallTape, with_numbers: bool) -> tuple[Any, ...]:
    """Return what a template must have in common with a tape, hashable; it proves nothing.

    ``with_numbers=False`` leaves integers out: a template has expressions in the place of those that are sizes.
    """
    operations = [
        (type(entry.what) if isinstance(entry.what, nn.Module) else entry.what, _of_code(entry.args, with_numbers))
        for entry in tape.entries
    ]
    return with_numbers, _of_code(tape.args, with_numbers), tuple(operations)


def _of_code(code: Any, with_numbers: bool) -> Any:
    kind = type(code)
    if kind is tuple or kind is list:
        return kind, tuple([_of_code(item, with_numbers) for item in code])
    if kind is float:
        return repr(code)  # ``nan`` differs from itself
    if kind in ATOMS and (with_numbers or kind is not int):
        return kind, code
    if kind is Struct:
        return code.type, len(code.items)
    return type(code.object) if kind is OpaqueArg else kind


def _has_sizes(template: GraphTemplate) -> bool:
    """Does it have an expression for a number among its arguments, or those of an operation?"""
    return bool(template.given_sizes) or any(
        type(leaf) is Size for entry in template.entries for leaf in leaves_in(entry.args)
    )


def _numbers_read(tape: CallTape) -> tuple[Any, ...]:
    """Return the numbers of a module, and of its settings, by which the code of its forward may choose."""
    names = frozenset[str]() if tape.code is None else decides_by(tape.code)
    read = frozenset[str]() if tape.code is None else frozenset(tape.code.co_names)
    found: list[Any] = []
    for name, value in tape.module.__dict__.items() if names else ():
        if name in names and type(value) in _NUMBERS:
            found.append((name, repr(value)))
        elif name in read and name not in _OF_MODULES and not callable(value) and not isinstance(value, Tensor):
            held = attributes_of(value) or {}
            found += [(name, key, repr(held[key])) for key in held if key in names and type(held[key]) in _NUMBERS]
    return tuple(found)


_NUMBERS = frozenset((bool, int, float, str))


@functools.lru_cache(4096)
def decides_by(code: types.CodeType) -> frozenset[str]:
    """Return the names of attributes with which a function does more than pass them on to calls.

    The number of a layer is mostly passed to a cache; one that is compared, or divided, may choose what the code does.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in _IDLE]
    return frozenset(
        [
            step.argval
            for place, step in enumerate(steps)
            if step.opname == "LOAD_ATTR" and not _is_passed_on(steps[place + 1 :])
        ]
    )


_IDLE = ("CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "PRECALL", "RESUME")


def _is_passed_on(steps: list[dis.Instruction]) -> bool:
    """Is what lies on Python's stack before these instructions given to a call, or is something of it read?"""
    above = 0  # values that lie on it
    for place, step in enumerate(steps):
        name, argument = step.opname, step.arg or 0
        if name.startswith("LOAD_"):
            if above == 0 and name in ("LOAD_ATTR", "LOAD_METHOD"):
                return True
        elif name.startswith(("CALL", "BUILD_")):
            if above < (2 * argument if name == "BUILD_MAP" else argument):
                return True
        elif name == "STORE_SUBSCR" and above == 0:
            return True
        elif name == "BINARY_SUBSCR" and above == 0:
            return steps[place + 1].opname in ("LOAD_ATTR", "LOAD_METHOD")  # ``layers[number].keys``
        else:  # whether it is ``None`` is among the traits of a module
            return name.startswith("POP_JUMP") and name.endswith("NONE") and above == 0
        above += dis.stack_effect(step.opcode, step.arg)
    return False


# Traits of a module ------------------------------------------------------------------------------

_MOST_ITEMS = 200  # of a container
_DEEPEST = 2  # levels of nested containers


def traits_of(module: nn.Module) -> tuple[Any, ...]:
    """Return the attributes on which a body's Python may branch; with other traits, it may have another graph.

    The value of an integer does not count, as it may be the number of a layer. Torch's own layers have no traits: all
    their decisions show on the tape.
    """
    if not module._modules and _is_of_torch(type(module)):
        return ()
    return tuple([(name, _trait(value)) for name, value in module.__dict__.items() if name not in _OF_MODULES])


def _is_of_torch(kind: type) -> bool:
    return is_part_of(kind.__module__, "torch.nn.modules")


def _trait(value: Any, depth: int = 0) -> Any:
    kind = type(value)
    if kind in (bool, str, float, type(None)):
        return kind, repr(value) if kind is float else value  # 0.0 is not -0.0
    if issubclass(kind, Tensor):
        return kind
    if depth < _DEEPEST:
        if kind in (list, tuple) and len(value) < _MOST_ITEMS:
            return kind, tuple([_trait(item, depth + 1) for item in value])
        if kind is dict and len(value) < _MOST_ITEMS:
            return kind, tuple([(str(key), _trait(item, depth + 1)) for key, item in value.items()])
    return (kind, Identity(value)) if callable(value) and not isinstance(value, nn.Module) else kind


def hooks_of(tape: CallTape) -> tuple[Any, ...]:
    """Return the hooks around the calls in a body, by their code: they may do what leaves no mark on the tape."""
    found: list[Any] = []
    for index, entry in enumerate(tape.entries):
        if entry.tape is not None:
            held = entry.what.__dict__
            if held.get("_forward_pre_hooks") or held.get("_forward_hooks"):
                hooks = (*held.get("_forward_pre_hooks", {}).values(), *held.get("_forward_hooks", {}).values())
                found.append((index, tuple([getattr(hook, "__code__", type(hook)) for hook in hooks])))
    return tuple(found)


_OF_MODULES = frozenset((*vars(nn.Module()), "forward"))


class Identity:
    """An object, compared by identity and held weakly. An id would not do: Python gives it to another object later.

    An object of a kind that cannot be held weakly equals no other.
    """

    __slots__ = ("_now",)

    def __init__(self, object: Any) -> None:
        self._now: Callable[[], Any]
        try:
            self._now = weakref.ref(object)
        except TypeError:
            self._now = _gone

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Identity:
            return self is other
        mine = self._now()
        return mine is not None and mine is other._now()

    __hash__ = None  # type: ignore[assignment]


def _gone() -> None:
    """Stand for a reference to an object that is gone."""

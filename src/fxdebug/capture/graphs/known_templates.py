"""Graph templates that were proven for a class, kept for its next instances.

Templates are kept by class, forward and training flag, a few for each. A template of a module with other traits is not
tried: an attribute may decide something that leaves no mark on the tape (a setting around an operation, a variable
around a call, a constant that only another run would show).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.graphs.template import GraphTemplate
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.torch_state.whose_code import is_part_of

TEMPLATES_PER_CLASS = 8  # per class, forward and training flag: bodies that branch have a few

_known: weakref.WeakKeyDictionary[type, dict[Any, list[GraphTemplate]]] = weakref.WeakKeyDictionary()


def _key(tape: CallTape) -> tuple[Any, bool]:
    return getattr(tape.forward, "__func__", tape.forward), bool(tape.module.training)


def templates_of(tape: CallTape) -> list[GraphTemplate]:
    """Return the templates that may hold for a call, the likeliest first."""
    templates = _known.get(type(tape.module), {}).get(_key(tape), [])
    if not templates:
        return templates
    module, traits = id(tape.module), traits_of(tape.module)
    candidates = [template for template in templates if template.traits == traits]
    return sorted(candidates, key=lambda each: module not in each.matched) if len(candidates) > 1 else candidates


def remember(tape: CallTape, template: GraphTemplate) -> None:
    """Keep a template that was proven for this call, unless it names a module or tensor by identity."""
    if template.for_class and not any(isinstance(entry.what, nn.Module) for entry in template.entries):
        templates = _known.setdefault(type(tape.module), {}).setdefault(_key(tape), [])
        templates.insert(0, template)
        del templates[TEMPLATES_PER_CLASS:]


def forget_templates() -> None:
    """Start afresh: the next run traces every class anew (for measurements and tests)."""
    _known.clear()


# Traits of a module ------------------------------------------------------------------------------

_MOST_ITEMS = 200  # of a container
_DEEPEST = 2  # levels of nested containers


def traits_of(module: nn.Module) -> tuple[Any, ...]:
    """Return the attributes on which a body's Python may branch; with other traits, it may have another graph.

    The value of an integer does not count, as it may be the number of a layer. Torch's own layers have no traits: all
    their decisions show on the tape.
    """
    if not module._modules and is_part_of(type(module).__module__, "torch.nn.modules"):
        return ()
    return tuple([(name, _trait(value)) for name, value in module.__dict__.items() if name not in _OF_MODULES])


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

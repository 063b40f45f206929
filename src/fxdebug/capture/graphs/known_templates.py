"""Graph templates that were proven for a class, kept for its next instances."""

from __future__ import annotations

import weakref
from typing import Any

from torch import nn

from fxdebug.capture.graphs.class_traits import traits_of
from fxdebug.capture.graphs.template import GraphTemplate
from fxdebug.capture.tape.call_tape import CallTape

PATTERNS_KEPT = 8  # per class, forward and training flag: bodies that branch have a few

_known: weakref.WeakKeyDictionary[type, dict[Any, list[GraphTemplate]]] = weakref.WeakKeyDictionary()


# Patterns of classes -----------------------------------------------------------------------------


def _key(body: CallTape) -> tuple[Any, bool]:
    return getattr(body.forward, "__func__", body.forward), bool(body.module.training)


def templates_of(body: CallTape) -> list[GraphTemplate]:
    kept = _known.get(type(body.module), {}).get(_key(body), [])
    if not kept:
        return kept
    module, traits = id(body.module), traits_of(body.module)
    fitting = [pattern for pattern in kept if pattern.traits == traits]
    return sorted(fitting, key=lambda pattern: module not in pattern.fitted) if len(fitting) > 1 else fitting


def remember(body: CallTape, pattern: GraphTemplate) -> None:
    if pattern.reusable and not any(isinstance(node.module, nn.Module) for node in pattern.nodes):
        kept = _known.setdefault(type(body.module), {}).setdefault(_key(body), [])
        kept.insert(0, pattern)
        del kept[PATTERNS_KEPT:]


def forget_patterns() -> None:
    """Start afresh: the next run traces every class anew (for measurements and tests)."""
    _known.clear()

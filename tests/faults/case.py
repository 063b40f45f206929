"""What a planted fault and an equal pair are, and the two decorators that collect them."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from . import ports_pairs, ports_rotary, ports_text, ports_vision
from .originals import inputs_of, reference

__all__ = ["EQUAL", "FAULTS", "PORTS", "Equal", "Fault", "Pair", "equal", "fault", "plant", "port", "ported"]

PORTS: dict[str, Callable[[Any], nn.Module]] = {
    "bert": ports_text.bert,
    "gpt2": ports_text.gpt2,
    "llama": ports_rotary.llama,
    "mixtral": ports_rotary.mixtral,
    "t5": ports_pairs.t5,
    "vit": ports_vision.vit,
    "whisper": ports_pairs.whisper,
}


@dataclass(frozen=True)
class Pair:
    """Two models and what they are called with; ``inputs_b`` where the suspect gets other inputs. Only b is changed."""

    a: nn.Module
    b: nn.Module
    inputs: dict[str, Any]
    inputs_b: dict[str, Any] | None = None


@dataclass(frozen=True)
class Fault:
    """One planted fault and the right answers.

    ``calls``: the paths in the suspect that may be named (in the reference where the suspect has none). ``ops``: the
    short names of operations that may be; ``-`` among them says that naming none is right as well. ``kinds``: empty
    where several words would do. The name begins with where it stands: ``bert/…`` in a copy of the original,
    ``port-bert/…`` in the port, ``real/…`` in one model of transformers held against another.
    """

    name: str
    build: Callable[[], Pair]
    calls: frozenset[str]
    ops: frozenset[str]
    kinds: frozenset[str]

    @property
    def place(self) -> str:
        """``original``, ``port`` or ``real``."""
        first = self.name.split("/")[0]
        return "port" if first.startswith("port-") else "real" if first == "real" else "original"


@dataclass(frozen=True)
class Equal:
    """A pair in which nothing may be found."""

    name: str
    build: Callable[[], Pair]


FAULTS: dict[str, Fault] = {}
EQUAL: dict[str, Equal] = {}


def fault(name: str, calls: str, ops: str, kinds: str = "") -> Callable[[Callable[[], Pair]], Callable[[], Pair]]:
    """Register a function that builds the pair; answers are words apart by blanks, ``.`` is the root."""

    def register(build: Callable[[], Pair]) -> Callable[[], Pair]:
        assert name not in FAULTS, name
        paths = frozenset("" if path == "." else path for path in calls.split())
        FAULTS[name] = Fault(name, build, paths, frozenset(ops.split()), frozenset(kinds.split()))
        return build

    return register


def equal(name: str) -> Callable[[Callable[[], Pair]], Callable[[], Pair]]:
    """Register a function that builds a pair in which nothing may be found."""

    def register(build: Callable[[], Pair]) -> Callable[[], Pair]:
        assert name not in EQUAL, name
        EQUAL[name] = Equal(name, build)
        return build

    return register


def plant(module: nn.Module, **methods: Callable[..., Any]) -> None:
    """Exchange methods of one module: ``plant(attention, scores=unscaled)``."""
    for name, function in methods.items():
        assert callable(getattr(module, name)), f"{type(module).__name__} has no {name}"
        object.__setattr__(module, name, types.MethodType(function, module))


def port(name: str, source: nn.Module | None = None) -> nn.Module:
    """The port of a model, with its weights."""
    return PORTS[name](reference(name) if source is None else source)


def ported(name: str, attention: str = "sdpa") -> tuple[nn.Module, nn.Module, dict[str, Any]]:
    """The original, its port and inputs."""
    source = reference(name, attention)
    return source, port(name, source), inputs_of(name)

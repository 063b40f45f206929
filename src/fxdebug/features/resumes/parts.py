"""The parts of a training that change from step to step: they are found, read, and set back to what they were.

A training is given as functions. The objects that these functions use are found in their closures, in the globals that
they name, and in the attributes of the object that they are methods of.
"""

from __future__ import annotations

import copy
import math
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, untracked

Kind: TypeAlias = Literal["model", "optimizer", "state", "generator", "random numbers", "number"]
Leaves: TypeAlias = "dict[str, Any]"
Place: TypeAlias = "tuple[Callable[[], Any], Callable[[Any], None]]"  # reads and writes a variable

DEEPEST: Final = 4  # objects in objects
MOST_ITEMS: Final = 100  # of a container: a longer one is data


@dataclass(frozen=True)
class Part:
    """One part of a training: ``read`` returns a copy of its content, ``write`` sets it to such a copy.

    ``leaves`` are the single values of a content by their names.
    """

    name: str
    kind: Kind
    read: Callable[[], Any]
    write: Callable[[Any], None]
    leaves: Callable[[Any], Leaves]


@dataclass(frozen=True)
class Training:
    """The functions that ``make`` returned (a step, how it is saved and loaded), the models and all parts."""

    step: Callable[[], Any]
    save: Callable[[Any], Any]
    load: Callable[[Any], Any]
    models: tuple[tuple[str, nn.Module], ...]
    parts: tuple[Part, ...]


def training_of(step: Callable[[], Any], save: Callable[[Any], Any], load: Callable[[Any], Any]) -> Training:
    """Return a training with the parts that its functions use."""
    found = _Found()
    for function in (step, save, load):
        found.look("", function, None)
    models = found.outermost_models()
    names = {id(p): f"{name}.{own}" if len(models) > 1 else own for name, m in models for own, p in _parameters(m)}
    parts = [
        *[_model(name, model) for name, model in models],
        *[_optimizer(name, each, names) for name, each in found.optimizers],
        *[_stateful(name, each) for name, each in found.stateful],
        *[Part(name, "generator", each.get_state, each.set_state, _one) for name, each in found.generators],
        *_random_numbers(),
        *found.numbers,
    ]
    return Training(step, save, load, tuple(models), tuple(parts))


class _Found:
    """The objects of a training, each once, under the first name by which it was found."""

    def __init__(self) -> None:
        self.models: list[tuple[str, nn.Module]] = []
        self.optimizers: list[tuple[str, torch.optim.Optimizer]] = []
        self.stateful: list[tuple[str, Any]] = []
        self.generators: list[tuple[str, torch.Generator]] = []
        self.numbers: list[Part] = []
        self._seen: dict[int, Any] = {}  # kept alive: an id is reused otherwise

    def look(self, name: str, thing: Any, place: Place | None) -> None:
        """Look at an object and at all in it; ``place`` reads and writes the variable that holds it."""
        pending: list[tuple[str, Any, Place | None, int]] = [(name, thing, place, 0)]
        while pending:
            name, thing, place, depth = pending.pop(0)
            if place is not None and type(thing) in (int, float, bool, str):
                self.numbers.append(Part(name, "number", place[0], place[1], _one))
                continue
            if id(thing) in self._seen or isinstance(thing, (Tensor, type, types.ModuleType, str, bytes, int, float)):
                continue
            self._seen[id(thing)] = thing
            if self._take(name, thing) or depth >= DEEPEST:
                continue
            pending += [(inner, item, where, depth + 1) for inner, item, where in _inside(name, thing)]

    def _take(self, name: str, thing: Any) -> bool:
        if isinstance(thing, nn.Module):
            self.models.append((name, thing))
        elif isinstance(thing, torch.optim.Optimizer):
            self.optimizers.append((name, thing))
        elif isinstance(thing, torch.Generator):
            self.generators.append((name, thing))
        elif callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None)):
            self.stateful.append((name, thing))
        else:
            return False
        return True

    def outermost_models(self) -> list[tuple[str, nn.Module]]:
        """Return the models that are in no other."""
        within = {id(part) for _, model in self.models for part in members.modules_of(model) if part is not model}
        return [(name, model) for name, model in self.models if id(model) not in within]


def _inside(name: str, thing: Any) -> Iterator[tuple[str, Any, Place | None]]:
    """Yield what is in an object, with its name, and how the place that holds it is read and written."""
    if isinstance(thing, types.MethodType):
        yield name, thing.__self__, None
        yield name, thing.__func__, None
    elif isinstance(thing, types.FunctionType):
        for variable, cell in zip(thing.__code__.co_freevars, thing.__closure__ or ()):
            try:
                yield variable, cell.cell_contents, (_reader(cell, "cell_contents"), _writer(cell, "cell_contents"))
            except ValueError:  # not assigned yet
                continue
        for variable in thing.__code__.co_names:
            if variable in thing.__globals__:
                yield variable, thing.__globals__[variable], None
    elif isinstance(thing, (list, tuple)):
        if len(thing) <= MOST_ITEMS:
            yield from ((f"{name}[{i}]", item, None) for i, item in enumerate(thing))
    elif isinstance(thing, dict):
        if len(thing) <= MOST_ITEMS:
            for key, item in list(thing.items()):
                read, write = _item_of(thing, key)
                yield f"{name}[{key!r}]", item, (read, write)
    elif hasattr(thing, "__dict__") and not isinstance(thing, types.BuiltinFunctionType):
        own = not str(type(thing).__module__).startswith(("torch", "numpy", "fxdebug"))
        for key, item in list(vars(thing).items()):
            place = (_reader(thing, key), _writer(thing, key)) if own else None
            yield f"{name}.{key}" if name else key, item, place


def _item_of(container: dict[Any, Any], key: Any) -> Place:
    return lambda: container.get(key), lambda new: container.__setitem__(key, new)


def _reader(thing: Any, key: str) -> Callable[[], Any]:
    return lambda: getattr(thing, key, None)


def _writer(thing: Any, key: str) -> Callable[[Any], None]:
    return lambda new: setattr(thing, key, new)


def _one(content: Any) -> Leaves:
    return {"": content}


# Kinds of parts ----------------------------------------------------------------------------------


def _parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return members.named_parameters_of(model)


def _model(name: str, model: nn.Module) -> Part:
    def read() -> Leaves:
        with untracked():
            tensors = {own: t.detach().clone() for own, t in (*_parameters(model), *members.named_buffers_of(model))}
        modes = {f"training of {path or name}": each.training for path, each in members.named_modules_of(model)}
        return {**tensors, **modes}

    def write(content: Leaves) -> None:
        with untracked(), torch.no_grad():
            for own, tensor in (*_parameters(model), *members.named_buffers_of(model)):
                if own in content:
                    tensor.copy_(content[own])
        for path, each in members.named_modules_of(model):
            each.training = content.get(f"training of {path or name}", each.training)

    return Part(name, "model", read, write, dict)


def _optimizer(name: str, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> Part:
    def leaves(content: Any) -> Leaves:
        known = [
            names.get(id(p), f"a parameter of no model ({i})") for i, p in enumerate(_of_groups(optimizer.param_groups))
        ]
        found: Leaves = {"trains": ", ".join(known)}
        for number, state in content["state"].items():
            whose = known[number] if isinstance(number, int) and number < len(known) else str(number)
            found.update({f"{key} of {whose}": value for key, value in state.items()})
        for number, group in enumerate(content["param_groups"]):
            where = f" of group {number}" if len(content["param_groups"]) > 1 else ""
            found.update({f"{key}{where}": value for key, value in group.items() if key != "params"})
        return found

    def read() -> Any:
        return copy.deepcopy(optimizer.state_dict())

    return Part(name, "optimizer", read, lambda content: optimizer.load_state_dict(copy.deepcopy(content)), leaves)


def _of_groups(groups: Iterable[Mapping[str, Any]]) -> Iterator[Tensor]:
    for group in groups:
        yield from group["params"]


def _stateful(name: str, thing: Any) -> Part:
    def read() -> Any:
        return copy.deepcopy(thing.state_dict())

    return Part(name, "state", read, lambda content: thing.load_state_dict(copy.deepcopy(content)), flat)


def _random_numbers() -> Iterator[Part]:
    yield Part("torch's random numbers", "random numbers", torch.get_rng_state, torch.set_rng_state, _one)
    yield Part("Python's random numbers", "random numbers", random.getstate, random.setstate, _one)
    if "numpy" in sys.modules:
        numbers = sys.modules["numpy"].random
        yield Part("numpy's random numbers", "random numbers", numbers.get_state, numbers.set_state, _one)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        get, put = torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
        yield Part("the accelerator's random numbers", "random numbers", get, put, _one)


# Values ------------------------------------------------------------------------------------------


def flat(content: Any, name: str = "") -> Leaves:
    """Return the single values in nested dicts, lists and tuples by their paths.

    >>> flat({"last_epoch": 3, "lrs": [0.1, 0.2]})
    {'last_epoch': 3, 'lrs[0]': 0.1, 'lrs[1]': 0.2}
    """
    if isinstance(content, Mapping) and content:
        found: Leaves = {}
        for key, item in content.items():
            found |= flat(item, f"{name}.{key}" if name else str(key))
        return found
    if isinstance(content, (list, tuple)) and content:
        return {key: item for i, inner in enumerate(content) for key, item in flat(inner, f"{name}[{i}]").items()}
    return {name: content}


def are_same(a: Any, b: Any) -> bool:
    """Are two values equal, tensors to the last bit? NaN equals NaN.

    >>> are_same(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan])), are_same(1, 2)
    (True, False)
    """
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(are_same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    try:
        return bool(a == b)
    except Exception:  # numpy's arrays among others
        return repr(a) == repr(b)

"""Isolating mode: a model runs on another one's rails, so that each of its calls is judged by itself.

Every call that has a counterpart is given what that was given, and its caller gets what that returned.
"""

from __future__ import annotations

import copy
import dataclasses
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.torch_state.mode_stack import makes_no_difference
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.comparison.meter import Meter
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.data.calls import Call
from fxdebug.data.values import Inputs, Outputs, Value

SURE = 0.5  # of a pair of calls that have other names

Plan = Mapping[str, Value]  # slot → the value of a that goes there


class InputReplay:
    """While it is entered, the calls of ``model`` are given and hand back what the paired calls of a did.

    ``pairs`` are those of a run of a, with its tensors kept, and of one of ``model``. Tensors are taken in the dtype
    and on the device of those they replace, and only where shapes agree. ``fed`` counts the calls.
    """

    def __init__(self, model: nn.Module, pairs: Pairs) -> None:
        self._model, self._trace = model, pairs.a.trace
        self._into: dict[tuple[str, int], Plan] = {}
        self._out: dict[tuple[str, int], Plan] = {}
        self._hooked = _hookable(model)
        written, meter = _written(pairs), Meter(pairs.a.trace, pairs.b.trace)
        for call in pairs.b.trace.calls:
            partner = pairs.call_in_a(call) if call.path in self._hooked else None
            if partner is not None and call.parent_index is not None and call.error is None:
                key = (call.path, call.number)
                own = written.get(call.index, set())
                given = [(slot, value) for slot, value in call.inputs.named() if value.storage not in own]
                self._into[key] = _plan(pairs, given, dict(partner.inputs.named()), call)
                if _otherwise_given(meter, partner, call):
                    self._into[key] = {}
                returned = partner.returned or partner.outputs
                if call.outputs is not None and returned is not None:
                    self._out[key] = _plan(pairs, call.outputs.named(), dict(returned.named()), call)
        self.fed = sum(bool(self._into.get(key) or self._out.get(key)) for key in self._into)
        self._handles: list[Any] = []
        self._counts: dict[str, int] = {}

    def __enter__(self) -> InputReplay:
        try:
            for path, module in self._hooked.items():
                before, after = self._hooks(path)
                self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                self._handles.append(module.register_forward_hook(after, with_kwargs=True))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hooks(self, path: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        running: list[int] = []  # calls of this module that are going on: it may call itself

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            number = self._counts[path] = self._counts.get(path, -1) + 1
            running.append(number)
            plan = self._into.get((path, number))
            if not plan:
                return None
            placed = tuple([self._put(plan, thing, f"args[{i}]") for i, thing in enumerate(args)])
            return placed, {name: self._put(plan, thing, name) for name, thing in kwargs.items()}

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            plan = self._out.get((path, running.pop()))
            return self._put(plan, output, "") if plan else None

        return before, after

    def _put(self, plan: Plan, thing: Any, slot: str) -> Any:
        """The thing with the tensors that are planned in place of its own; itself where there are none."""
        if isinstance(thing, Tensor):
            value = plan.get(slot)
            return thing if value is None else self._tensor(value, thing)
        if isinstance(thing, (list, tuple)):
            keys: Iterable[Any] = getattr(thing, "_fields", range(len(thing)))
            placed = [self._put(plan, item, _slot(slot, key)) for key, item in zip(keys, thing)]
            if all(new is old for new, old in zip(placed, thing)):
                return thing
            return type(thing)(*placed) if hasattr(thing, "_fields") else type(thing)(placed)
        if isinstance(thing, dict):
            changed = {key: self._put(plan, item, _slot(slot, key)) for key, item in thing.items()}
            if all(changed[key] is item for key, item in thing.items()):
                return thing
            made = copy.copy(thing)
            for key, item in changed.items():
                made[key] = item
            return made
        if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            held = {field.name: getattr(thing, field.name, None) for field in dataclasses.fields(thing)}
            changed = {name: self._put(plan, item, _slot(slot, name)) for name, item in held.items()}
            if all(changed[name] is item for name, item in held.items()):
                return thing
            twin: Any = copy.copy(thing)
            for name, item in changed.items():
                object.__setattr__(twin, name, item)
            return twin
        return thing

    def _tensor(self, value: Value, like: Tensor) -> Tensor:
        if type(like) not in (Tensor, nn.Parameter) or tuple(like.shape) != value.shape:
            return like
        with untracked():  # neither the tape nor autograd takes notice; in memory of torch's own, which has versions
            found: Tensor = self._trace.tensor(value).to(device=like.device, dtype=like.dtype, copy=True)
        return found


def _hookable(model: nn.Module) -> dict[str, nn.Module]:
    """The modules below a model by their paths, without those whose hooks would make it run in another way.

    ``nn.TransformerEncoder`` runs its layers fused, if neither they nor anything in them has a hook.
    """
    named = dict(model.named_modules())
    fused = [path for path, module in named.items() if not makes_no_difference(module)]
    return {
        path: module
        for path, module in named.items()
        if path
        and not (path in fused and isinstance(module, nn.TransformerEncoderLayer))
        and not any(path.startswith(f"{whole}." if whole else "") for whole in fused)
    }


# What goes where -----------------------------------------------------------------------------------


def _plan(pairs: Pairs, slots: Iterable[tuple[str, Value]], known: Mapping[str, Value], call: Call) -> Plan:
    """For each tensor of a call of b the one of its partner: of calls of one name that in the same place.

    Of other calls only what is surely a pair: with a wrong value in its place nothing after it could be judged.
    """
    match = pairs.calls[call.index]
    named = match.matched_by in ("path", "mapping")
    if not named and match.confidence < SURE:
        return {}
    found: dict[str, Value] = {}
    for slot, value in slots:
        fitting = [x for x in known.values() if x.saved is not None and x.shape == value.shape and _of_a_kind(x, value)]
        fitting = [x for x in fitting if x.detail is None and value.detail is None]  # inside vmap, say
        placed = known.get(slot) if known.get(slot) in fitting else None
        partner = next((x for x in fitting if pairs.are_paired(x, value)), None)
        chosen = (placed or partner) if named else partner
        if chosen is not None:
            found[slot] = chosen
    return found


def _otherwise_given(meter: Meter, a: Call, b: Call) -> bool:
    """Do they return the same of other inputs? Then they are told it in another way (positions from 2, not from 0)."""
    returned = _apart(meter, a.outputs, b.outputs)
    return returned is False and _apart(meter, a.inputs, b.inputs) is True


def _apart(meter: Meter, a: Inputs | Outputs | None, b: Inputs | Outputs | None) -> bool | None:
    """Is anything of what stands in the same places further apart than rounding? ``None`` where nothing is known."""
    named = {} if a is None else dict(a.named())
    sides = [(named[slot], value) for slot, value in (() if b is None else b.named()) if slot in named]
    known = [(meter(x, y), meter.tolerance(x, y)) for x, y in sides if _of_a_kind(x, y)]
    known = [(found, limit) for found, limit in known if found.what != "unknown"]
    return any(found.error > limit for found, limit in known) if known else None


def _of_a_kind(a: Value, b: Value) -> bool:
    """May one be cast to the other? Not a mask of numbers to one of booleans, nor positions to activations."""
    return _kind(a.dtype) == _kind(b.dtype)


def _kind(dtype: str) -> str:
    return "float" if "float" in dtype else "complex" if "complex" in dtype else "bool" if dtype == "bool" else "int"


def _written(pairs: Pairs) -> dict[int, set[int | None]]:
    """For each call of b the memory that it and the calls in it write to: its caller must see that, so it stays."""
    found: dict[int, set[int | None]] = {}
    trace = pairs.b.trace
    for call in reversed(trace.calls):
        body = call.body
        own = found.setdefault(call.index, set())
        own |= {value.storage for _, value in body.writes} if body is not None else set()
        if call.parent_index is not None and own:
            found.setdefault(call.parent_index, set()).update(own)
    return found


def _slot(parent: str, key: Any) -> str:
    """As :func:`fxdebug.data.values.leaves` names the places in a container."""
    if isinstance(key, str) and key.isidentifier():
        return f"{parent}.{key}" if parent else key
    return f"{parent}[{key!r}]"


# The same start for every run ----------------------------------------------------------------------


@contextmanager
def as_they_were(*models: nn.Module) -> Iterator[Callable[[], None]]:
    """Gives a function that puts random generators, buffers and attributes of the models' modules back.

    They are put back at the end, too. What an attribute holds (a list that grows) is not looked into.
    """
    modules = {id(module): module for model in models for module in model.modules()}.values()
    states = _random_states()
    attributes = [(module, type(module), _attributes(module)) for module in modules]
    buffers = [
        (module._buffers, name, buffer, buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]

    def again() -> None:
        for put, state in states:
            put(state)
        for module, kind, before in attributes:
            if type(module) is kind:  # a lazy module becomes another one once and for all
                now = vars(module)
                for name in _attributes(module).keys() - before.keys():
                    del now[name]
                now.update(before)
        with untracked(), torch.no_grad():
            for held, name, buffer, kept in buffers:
                held[name] = buffer
                if not torch.equal(buffer, kept):
                    buffer.copy_(kept)

    try:
        yield again
    finally:
        again()


_OF_TORCH = frozenset(vars(nn.Module()))


def _attributes(module: nn.Module) -> dict[str, Any]:
    """What a module's own code keeps on it, besides parameters, buffers, modules and hooks."""
    return {name: held for name, held in vars(module).items() if name not in _OF_TORCH}


def _random_states() -> list[tuple[Callable[[Any], Any], Any]]:
    found: list[tuple[Callable[[Any], Any], Any]] = [
        (torch.set_rng_state, torch.get_rng_state()),
        (random.setstate, random.getstate()),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found.append((numpy.random.set_state, numpy.random.get_state()))
    return found


def copied(inputs: Any) -> Any:
    """Inputs of one's own for a run: models may write into them, caches above all. Themselves where that fails."""
    try:
        return copy.deepcopy(inputs)
    except Exception:
        return inputs

"""Run a training in one go, and saved, rebuilt and loaded in between; find the parts without which the two differ."""

from __future__ import annotations

import hashlib
import math
import random
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import Attached, ForwardsOnly, Sites, members, named_tensors, state_restored, untracked
from fxdebug.errors import UsageError, with_article
from fxdebug.features.resumes.parts import Leaves, Part, Training, are_same, training_of

DATA: Final = "the position in the data"
ANOTHER_SEED: Final = 20_260_229  # a new process draws other numbers than the one that saved
RANDOM: Final = ("generator", "random numbers")
MOST_TRIED: Final = 10  # parts that differ; each is tried once


@dataclass
class Steps:
    """Steps of a training, each with its loss, a digest of what its models were given, and one of their weights."""

    losses: list[float | None] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)

    def first_difference(self, other: Steps) -> int | None:
        """Return the first step after which losses or weights differ; ``None`` where there is none."""
        for step, mine in enumerate(zip(self.losses, self.weights)):
            if not are_same(list(mine), [other.losses[step], other.weights[step]]):
                return step
        return None


@dataclass(frozen=True)
class LostPart:
    """A part that loading did not bring back.

    ``changed`` are its values, as they were saved and as they are after loading, ``missing`` those that are not there.
    ``needed``: do the steps differ where all other parts are brought back? ``None`` where that could not be tried.
    ``loss`` is the loss of the last step without it.
    """

    name: str
    kind: str
    changed: tuple[tuple[str, Any, Any], ...] = ()
    missing: tuple[str, ...] = ()
    needed: bool | None = None
    loss: float | None = None
    again: int | None = None  # of the data: the step in one go that was given this batch


@dataclass(frozen=True)
class Resumption:
    """The outcome: the steps in one go and those after loading, where they part, and what was lost.

    ``undetermined``: the step at which two runs in one go differ already. ``saving_changes``: the step at which a run
    that is saved in between differs from one that is not. ``explained``: with all lost parts brought back, are the
    steps equal? ``None`` where nothing differs.
    """

    whole: Steps
    resumed: Steps
    first: int | None
    lost: tuple[LostPart, ...] = ()
    undetermined: int | None = None
    saving_changes: int | None = None
    explained: bool | None = None


class _Inputs(ForwardsOnly):
    """Takes a digest of what the outermost call of a model is given."""

    def __init__(self, model: nn.Module, digest: hashlib.blake2b) -> None:
        self._model, self._digest, self._inside = model, digest, False

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward; note what the model itself is given."""
        if module is not self._model or self._inside:
            return run(*args, **kwargs)
        self._inside = True
        try:
            add_tensors(self._digest, [tensor for _, tensor in named_tensors((args, kwargs))])
            return run(*args, **kwargs)
        finally:
            self._inside = False


def add_tensors(digest: hashlib.blake2b, tensors: Sequence[Tensor]) -> None:
    """Add the bytes of tensors to a digest."""
    with untracked(), torch.no_grad():
        for tensor in tensors:
            copy = tensor.detach().to("cpu", copy=True).contiguous()
            digest.update(f"{copy.dtype} {tuple(copy.shape)}".encode())
            digest.update(copy.reshape(-1).view(torch.uint8).numpy())


def resumption_of(make: Callable[[], Any], steps: int) -> Resumption:
    """Run ``2 · steps`` steps in one go, and ``steps`` before and after saving and loading; find what differs.

    Random generators are afterwards as before. Exceptions of the training pass through.
    """
    with state_restored() as restore, tempfile.TemporaryDirectory() as folder:
        return _Trial(make, steps, Path(folder) / "checkpoint", restore).outcome()


class _Trial:
    def __init__(self, make: Callable[[], Any], steps: int, path: Path, restore: Callable[[], None]) -> None:
        self._make, self._steps, self._path, self._restore = make, steps, path, restore
        self._saved: dict[str, Any] = {}  # contents of the parts when they were saved
        self._leaves: dict[str, Leaves] = {}  # their single values
        self._drawn: set[str] = set()  # random generators that the steps draw from
        self._loaded: dict[str, Any] = {}  # and in a new process, when they were loaded

    def outcome(self) -> Resumption:
        whole = self._run(self._new(), 2 * self._steps)
        interrupted = self._saved_in_between()
        parted = whole.first_difference(interrupted)
        if parted is not None:
            again = self._run(self._new(), 2 * self._steps).first_difference(whole)
            return Resumption(whole, interrupted, parted, undetermined=again, saving_changes=parted)
        training, resumed = self._resumed(())
        if resumed.first_difference(_after(whole, self._steps)) is None:
            return Resumption(whole, resumed, None, self._lost(training, resumed, whole))
        lost = self._lost(training, resumed, whole)
        first = resumed.first_difference(_after(whole, self._steps))
        explained, lost = self._tried(lost, whole)
        return Resumption(whole, resumed, first, lost, explained=explained)

    # Runs ----------------------------------------------------------------------------------------

    def _new(self, *, as_a_new_process: bool = False) -> Training:
        self._restore()
        if as_a_new_process:
            torch.manual_seed(ANOTHER_SEED)
            random.seed(ANOTHER_SEED)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(ANOTHER_SEED)
        made = self._make()
        functions: tuple[Any, ...] = (
            made if isinstance(made, tuple) else tuple(getattr(made, n, None) for n in ("step", "save", "load"))
        )
        if len(functions) != 3 or not all(map(callable, functions)):
            raise UsageError(
                f"make() returned {with_article(type(made).__name__)}: let it return the functions (step, save, load), "
                "or an object with these three: step() trains one step, save(path) writes a checkpoint, load(path) "
                "reads it"
            )
        step, save, load = functions
        training = training_of(step, save, load)
        if not training.models:
            raise UsageError(
                "step, save and load use no nn.Module: let them be functions or methods that have the model"
            )
        return training

    def _run(self, training: Training, steps: int) -> Steps:
        done = Steps()
        for _ in range(steps):
            digest = hashlib.blake2b(digest_size=16)
            with ExitStack() as stack:
                for _, model in training.models:
                    stack.enter_context(Attached(_Inputs(model, digest), Sites(model)))
                returned = training.step()
            done.losses.append(_number(returned))
            done.inputs.append(digest.hexdigest())
            weights = hashlib.blake2b(digest_size=16)
            for _, model in training.models:
                add_tensors(weights, [*members.parameters_of(model), *members.buffers_of(model)])
            done.weights.append(weights.hexdigest())
        return done

    def _saved_in_between(self) -> Steps:
        training = self._new()
        begun = {part.name: part.read() for part in training.parts if part.kind in RANDOM}
        done = self._run(training, self._steps)
        training.save(self._path)
        self._saved = {part.name: part.read() for part in training.parts}
        self._leaves = {part.name: part.leaves(self._saved[part.name]) for part in training.parts}
        later = self._run(training, self._steps)
        self._drawn = {part.name for part in training.parts if not are_same(begun.get(part.name), part.read())}
        return Steps(done.losses + later.losses, done.inputs + later.inputs, done.weights + later.weights)

    def _resumed(self, restored: Collection[str]) -> tuple[dict[str, tuple[Part, Any]], Steps]:
        """Return what the parts hold after loading, and the steps then, with some parts brought back by us."""
        training = self._new(as_a_new_process=DATA not in restored)
        if DATA in restored:  # the first steps are run again: they take their batches
            self._run(training, self._steps)
        training.load(self._path)
        training = training_of(training.step, training.save, training.load)  # load() may have made other objects
        loaded = {part.name: (part, part.read()) for part in training.parts}
        self._loaded = self._loaded or {name: content for name, (_, content) in loaded.items()}
        for part in training.parts:
            if part.name in restored and part.name in self._saved:
                part.write(self._saved[part.name])
            elif DATA in restored and part.name in self._loaded:  # the steps that were run again changed it
                part.write(self._loaded[part.name])
        return loaded, self._run(training, self._steps)

    # What was lost -------------------------------------------------------------------------------

    def _lost(self, loaded: dict[str, tuple[Part, Any]], resumed: Steps, whole: Steps) -> tuple[LostPart, ...]:
        lost = []
        for name, (part, content) in loaded.items():
            if name in self._saved and (part.kind not in RANDOM or name in self._drawn):
                before, now = self._leaves[name], part.leaves(content)
                changed, missing = _differences(before, now)
                if changed or missing:
                    lost.append(LostPart(name, part.kind, changed, missing))
        if resumed.inputs[0] != whole.inputs[self._steps]:
            again = next((i for i, given in enumerate(whole.inputs) if given == resumed.inputs[0]), None)
            lost.append(LostPart(DATA, "data", again=again))
        return tuple(lost)

    def _tried(self, lost: tuple[LostPart, ...], whole: Steps) -> tuple[bool, tuple[LostPart, ...]]:
        """Bring back all lost parts, then all but one: which of them are needed?"""
        wanted = _after(whole, self._steps)
        names = [part.name for part in lost]
        _, steps = self._resumed(names)
        explained = steps.first_difference(wanted) is None
        if not explained or len(lost) > MOST_TRIED:
            return explained, lost
        tried = []
        for part in lost:
            _, without = self._resumed([name for name in names if name != part.name])
            needed = without.first_difference(wanted) is not None
            tried.append(
                LostPart(part.name, part.kind, part.changed, part.missing, needed, without.losses[-1], part.again)
            )
        return True, tuple(tried)


def _after(whole: Steps, steps: int) -> Steps:
    return Steps(whole.losses[steps:], whole.inputs[steps:], whole.weights[steps:])


def _number(returned: Any) -> float | None:
    """Return the loss that a step returned; ``None`` for anything that is not one number."""
    try:
        number = float(returned.detach() if isinstance(returned, Tensor) else returned)
    except (TypeError, ValueError, RuntimeError):
        return None
    return number if not math.isnan(number) else math.nan


def _differences(before: Leaves, now: Leaves) -> tuple[tuple[tuple[str, Any, Any], ...], tuple[str, ...]]:
    changed = tuple(
        (name, old, now[name]) for name, old in before.items() if name in now and not are_same(old, now[name])
    )
    return changed, tuple(name for name in before if name not in now)

"""The names in a checkpoint file and those in the model that it is loaded into."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import median

import torch
from torch import Tensor, nn

from fxdebug.analyses.paired_names import prefix_between
from fxdebug.capture.probe import members
from fxdebug.data.findings import ADVICE, WARNING, Finding, Severity
from fxdebug.data.measures import counted
from fxdebug.features.weights.changed.kinds import UNLIKE
from fxdebug.features.weights.record import WeightChange

NAMED = 6
LEAST, ELEMENTS = 3, 64  # matrices of so many elements, of which no likeness is no chance
CHANCE = 2.0  # standard errors of the cosine of matrices that have nothing to do with one another


def names_of(model: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Return each parameter and each buffer of a checkpoint with all its names; tied ones are together."""
    found: dict[int, tuple[list[str], Tensor]] = {}
    for path, module in members.named_modules_of(model, every_name=True):
        for registry, left_out in ((module._parameters, ()), (module._buffers, module._non_persistent_buffers_set)):
            for name, tensor in registry.items():
                if tensor is not None and name not in left_out:
                    found.setdefault(id(tensor), ([], tensor))[0].append(members.join(path, name))
    return list(found.values())


def left_out_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that learn in modules of plain lists and dicts, by their places: no checkpoint has them."""
    known = {id(parameter) for parameter in members.parameters_of(model)}
    return {
        members.join(path, f"{place}.{name}"): parameter
        for path, module in members.named_modules_of(model)
        for place, one in members.unregistered_in(module)
        if "[" in place
        for name, parameter in members.named_parameters_of(one)
        if id(parameter) not in known and parameter.requires_grad
    }


def find_left_out(weights: Collection[str], differing: Collection[str] | None) -> Iterator[Finding]:
    """Yield the weights that no checkpoint has; of two models (``differing``), where they are others in the second."""
    if not weights or (differing is not None and not differing):
        return
    holders = list(dict.fromkeys(name.partition("[")[0] for name in weights))
    named = list(weights if differing is None else differing)
    one = len(named) == 1
    end = f"differ{'s' * one} between both" if differing is not None else f"{'is' if one else 'are'} in no checkpoint"
    yield _finding(
        "not in file",
        named,
        f"state_dict() leaves out {' and '.join(holders)}, as no nn.ModuleList or nn.ModuleDict has these modules, and "
        f"{counted(len(named), 'weight')} of them {end}",
        "They stay as each instance draws them: use nn.ModuleList or nn.ModuleDict, and save again.",
    )


def find_unmatched(file: Mapping[str, Callable[[], Tensor]], model: nn.Module) -> Iterator[Finding]:
    """Yield the names of a file that no module takes, and the weights of a model that no name of the file fills.

    What a loader put under another name, or joined to one weight, is there by its numbers.
    """
    groups = names_of(model)
    known = {name for names, _ in groups for name in names}
    beyond = [name for name in file if name not in known]
    unfilled = {names[0]: tensor for names, tensor in groups if not any(name in file for name in names)}
    taken, filled = _held_by_numbers({name: file[name]() for name in beyond} if unfilled else {}, unfilled)
    beyond, missing = [name for name in beyond if name not in taken], [name for name in unfilled if name not in filled]
    prefix = prefix_between(beyond, missing)
    hint = f" All but for the prefix {prefix!r}, which one of them has: take it off or add it." if prefix else ""
    if beyond:
        yield _finding(
            "not in model",
            beyond,
            f"{counted(len(beyond), 'name')} of the checkpoint {'is' if len(beyond) == 1 else 'are'} of no parameter "
            "and no buffer of the model",
            "load_state_dict(strict=False) leaves them out: look for a module that was renamed or not built." + hint,
        )
    if missing:
        yield _finding(
            "not in file",
            missing,
            f"{counted(len(missing), 'weight')} of the model {'is' if len(missing) == 1 else 'are'} not in the "
            "checkpoint",
            "After load_state_dict(strict=False) they are as they were drawn: load them from elsewhere, or tie them."
            + hint,
        )


def _held_by_numbers(file: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> tuple[set[str], set[str]]:
    """Return the names of a file whose numbers are in weights of other names, and these: whole, or joined in rows."""
    taken: set[str] = set()
    filled: set[str] = set()
    for name, weight in own.items():
        rest = weight.detach()
        parts: list[str] = []
        while rest.ndim and len(rest):
            part = next((one for one in file if one not in taken | {*parts} and _begins(rest, file[one])), None)
            if part is None:
                break
            parts.append(part)
            rest = rest[len(file[part]) :]
        if parts and not len(rest):
            taken.update(parts)
            filled.add(name)
    return taken, filled


def _begins(weight: Tensor, part: Tensor) -> bool:
    """Are the first rows of a weight those of a part?"""
    if part.ndim != weight.ndim or part.shape[1:] != weight.shape[1:] or not 0 < len(part) <= len(weight):
        return False
    if weight.is_meta or part.is_meta or weight.device != part.device or part.dtype != weight.dtype:
        return False
    return bool((weight[0] == part[0]).all()) and torch.equal(weight[: len(part)], part)


def find_missing(changes: Sequence[WeightChange]) -> Iterator[Finding]:
    """Yield the parts of a first checkpoint that a second of the same model, as its other weights tell, has not."""
    both = sum(change.shape_a is not None and change.shape_a == change.shape_b for change in changes)
    gone = [change.name for change in changes if change.shape_b is None]
    if not gone or len(gone) >= both or any(change.shape_a is None for change in changes):
        return
    parts = sorted({name.partition(".")[0] for name in gone} - {c.name.partition(".")[0] for c in changes if c.shape_b})
    whole = f" (all of {', '.join(parts)})" if parts else ""
    yield _finding(
        "not in second",
        gone,
        f"{counted(len(gone), 'weight')} of the first {'is' if len(gone) == 1 else 'are'} not in the second{whole}, "
        f"which has the other {both}",
        "What is loaded from the second leaves these as they are drawn: a class that does not know them saved it.",
        ADVICE,
    )


def find_nothing_loaded(changes: Sequence[WeightChange], under: str) -> list[Finding]:
    """Return a finding where no matrix of a model has anything in common with that of its file; ``under``: the key."""
    both = [c for c in changes if c.shape_a is not None and c.shape_a == c.shape_b and c.cosine is not None]
    matrices = [c for c in both if len(c.shape_a or ()) > 1 and math.prod(c.shape_a or ()) >= ELEMENTS and c.norm]
    likest = max((abs(c.cosine or 0.0) for c in matrices), default=1.0)
    chances = [abs(c.cosine or 0.0) * math.sqrt(math.prod(c.shape_a or ())) for c in matrices]
    if len(matrices) < LEAST or likest > UNLIKE or median(chances) > CHANCE:
        return []
    return [
        _finding(
            "not in model",
            [c.name for c in matrices],
            f"none of the {len(matrices)} matrices of the model has anything in common with that of its name in the "
            f"file (cosine at most {likest:.2g}): nothing was loaded"
            + (f"; the file has them under {under!r}" if under else ""),
            "load_state_dict(strict=False) takes nothing of other keys, and says nothing: give it what stands under "
            "the key that the file has.",
        )
    ]


def find_prefix(changes: Sequence[WeightChange], prefix: str, a: Sequence[str], b: Sequence[str]) -> list[Finding]:
    """Return a finding where names differ by a prefix and most weights differ: nothing was loaded by these names."""
    both = [change for change in changes if change.shape_a is not None and change.shape_b is not None]
    other = [change for change in both if change.differing or change.shape_a != change.shape_b]
    if 2 * len(other) <= len(both):
        return []
    whose, rest = ("first", "second") if any(name.startswith(prefix) for name in a) else ("second", "first")
    longer = a if whose == "first" else b
    return [
        _finding(
            "not in model",
            [name for name in longer if name.startswith(prefix)],
            f"the names of the {whose} have the prefix {prefix!r}, which those of the {rest} have not, and "
            f"{len(other)} of {len(both)} weights are others: nothing was loaded by these names",
            "load_state_dict(strict=False) takes none of them: take the prefix off the keys, or load the module that "
            "has it.",
        )
    ]


def _finding(rule: str, names: Sequence[str], what: str, advice: str, severity: Severity = WARNING) -> Finding:
    path = names[0].rpartition(".")[0]
    named = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
    return Finding(
        rule=rule,
        severity=severity,
        path=path,
        call=f"{path}#0",
        op=names[0],
        what=f"{what}: {named}",
        measured=float(len(names)),
        threshold=0.0,
        advice=advice,
        others=tuple(names[1:]),
    )

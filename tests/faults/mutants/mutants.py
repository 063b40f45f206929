"""Draw ports with one fault at a random place, run them, and judge what is told first.

Half of the ports have other names and one healthy rewrite elsewhere, which must not be blamed.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fxdebug

from .code_faults import CODE, Change
from .models import MODELS, built
from .rewrites import rewritten
from .weight_faults import WEIGHTS, WeightChange

SOURCE = Path(__file__).with_name("models.py")
IN_INIT = ("another epsilon", "an argument of a layer")  # kinds that change how a layer is made
TRIES = 40  # drawings until one runs and returns something else
LEAST_CHANGE = 1e-3  # relative, in some output

NOTHING_SAID = re.compile(
    r"other values|nothing that could be paired|returns another|differs from that of a$|not as in a"
)


@dataclass(frozen=True)
class Mutant:
    """A port with one fault: what was done to it, where, and which words are right."""

    model: str
    kind: str
    what: str  # the line before and after
    source: str  # of the port
    sound: str  # the same without the fault
    names: dict[str, str]  # classes and attributes of the reference → those of the port
    weights: dict[str, torch.Tensor]  # changed ones, by the reference's names
    place: str  # a class of the port, or the module of a weight
    right: str
    ops: str
    rewrite: str = ""


@dataclass(frozen=True)
class Verdict:
    """What was told first of a mutant, and how good it is."""

    mutant: Mutant
    place: bool
    cause: str  # right, half, absent, wrong, equal
    said: str
    alarm: str = ""  # what was found in the port without the fault, and must not be

    @property
    def right(self) -> bool:
        """Is the cause right, at the right place?"""
        return self.place and self.cause == "right"


def drawn(seed: int, count: int) -> Iterator[Mutant]:
    """Yield mutants that run and return something else than their references."""
    rng = random.Random(seed)
    kinds = [*CODE, *WEIGHTS]
    for number in range(count):
        for _ in range(TRIES):
            kind = rng.choice(kinds)
            mutant = _draw(rng, rng.choice(list(MODELS)), kind, other_names=number % 2 == 1)
            if mutant is not None and _differs(mutant):
                yield mutant
                break


# Drawing -----------------------------------------------------------------------------------------


def _draw(rng: random.Random, model: str, kind: str, other_names: bool) -> Mutant | None:
    tree = ast.parse(SOURCE.read_text())
    classes = _reachable(tree, MODELS[model][0].__name__)
    changed: dict[str, torch.Tensor] = {}
    replaced: dict[ast.AST, ast.AST] = {}
    if kind in WEIGHTS:
        reference = built(MODELS[model][0])
        state = dict(reference.named_parameters(remove_duplicate=False))
        found = [(name, change) for name in state for change in WEIGHTS[kind](name, _data(state))]
        if not found:
            return None
        name, change = rng.choice(found)
        assert isinstance(change, WeightChange)
        changed, place, right, ops, what = change.new, name.rpartition(".")[0], change.right, re.escape(name), name
    else:
        sites = [
            (node, owner, one)
            for owner in classes
            for function in owner.body
            if isinstance(function, ast.FunctionDef) and (function.name != "__init__" or kind in IN_INIT)
            for node in ast.walk(function)
            for one in CODE[kind](node)
        ]
        if not sites:
            return None
        node, owner, one = rng.choice(sites)
        assert isinstance(one, Change)
        replaced[node] = one.new
        place, right, ops = owner.name, one.right, one.ops
        what = f"{_text(node)} → {_text(one.new)}"
    rewrite = ""
    names: dict[str, str] = {}
    healthy: dict[ast.AST, ast.AST] = {}
    if other_names:
        fault = {id(each) for node in replaced for each in ast.walk(node)}
        around = {id(each) for each in ast.walk(tree) if any(node in ast.walk(each) for node in replaced)}
        ways = [
            (node, new, f"{owner.name}: {word}")
            for owner in classes
            for node in ast.walk(owner)
            if id(node) not in fault | around
            for new, word in rewritten(node, _modules_of(owner))
        ]
        if ways:
            node, new, rewrite = rng.choice(ways)
            healthy[node] = new
        names = _other_names(classes)
    tree.body = [each for each in tree.body if not isinstance(each, ast.ClassDef) or each in classes]
    tree.body = [each for each in tree.body if not isinstance(each, (ast.FunctionDef, ast.AnnAssign))]
    sound, source = (_written(tree, nodes, names) for nodes in (healthy, {**healthy, **replaced}))
    return Mutant(model, kind, what, source, sound, names, changed, place, right, ops, rewrite)


def _written(tree: ast.Module, nodes: dict[ast.AST, ast.AST], names: dict[str, str]) -> str:
    """Return the code with some nodes in the place of others, and with other names."""
    known: dict[int, Any] = {}
    copied = copy.deepcopy(tree, known)
    new = {known[id(old)]: copy.deepcopy(new) for old, new in nodes.items()}
    return ast.unparse(ast.fix_missing_locations(_Replacing(new, names).visit(copied)))


def _data(state: dict[str, nn.Parameter]) -> dict[str, torch.Tensor]:
    """Return the numbers of parameters; those that are tied are one tensor."""
    known = {id(weight): weight.detach() for weight in state.values()}
    return {name: known[id(weight)] for name, weight in state.items()}


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:110]


def _reachable(tree: ast.Module, root: str) -> list[ast.ClassDef]:
    """Return a class and those that it uses, in the order of the file."""
    known = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    pending, found = [root], set[str]()
    while pending:
        name = pending.pop()
        found.add(name)
        used = {each.id for each in ast.walk(known[name]) if isinstance(each, ast.Name)}
        pending += sorted((used & known.keys()) - found)
    return [known[name] for name in known if name in found]


def _modules_of(owner: ast.ClassDef) -> dict[str, str]:
    """Return the attributes that a class sets, with the name of the class that each is made of."""
    set_here = [each for each in ast.walk(owner) if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)]
    return {
        each.targets[0].attr: ast.unparse(each.value.func).rpartition(".")[2]
        for each in set_here
        if isinstance(each.targets[0], ast.Attribute) and ast.unparse(each.targets[0].value) == "self"
    }


def _other_names(classes: list[ast.ClassDef]) -> dict[str, str]:
    attributes = dict.fromkeys(name for owner in classes for name in _modules_of(owner))
    names = {name: f"za{number}" for number, name in enumerate(attributes)}
    return names | {owner.name: f"Zc{number}" for number, owner in enumerate(classes)}


class _Replacing(ast.NodeTransformer):
    """Put nodes in the place of others, and other names in the place of names."""

    def __init__(self, nodes: dict[ast.AST, ast.AST], names: dict[str, str]) -> None:
        self._nodes, self._names = nodes, names

    def visit(self, node: ast.AST) -> ast.AST:
        new = self._nodes.pop(node, node)
        self.generic_visit(new)
        if isinstance(new, ast.Attribute) and isinstance(new.value, ast.Name) and new.value.id == "self":
            new.attr = self._names.get(new.attr, new.attr)
        elif isinstance(new, ast.Name):
            new.id = self._names.get(new.id, new.id) if new.id[0].isupper() else new.id
        elif isinstance(new, ast.ClassDef):
            new.name = self._names.get(new.name, new.name)
        return new


# Running and judging -----------------------------------------------------------------------------


def pair_of(mutant: Mutant, folder: Path, *, sound: bool = False) -> tuple[nn.Module, nn.Module, Any]:
    """Return the reference, the port, which is written to a folder, and the inputs; ``sound``: without the fault."""
    own, inputs = MODELS[mutant.model]
    path = folder / f"port_{mutant.model}_{'sound' if sound else 'faulty'}.py"
    path.write_text(mutant.sound if sound else mutant.source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    a = built(own)
    b = getattr(module, mutant.names.get(own.__name__, own.__name__))().eval()
    b.load_state_dict(dict(zip(b.state_dict(), a.state_dict().values(), strict=True)))
    other = dict(zip((name for name, _ in a.named_parameters(remove_duplicate=False)), _parameter_names(b)))
    for name, numbers in () if sound else mutant.weights.items():
        module_path, _, leaf = other[name].rpartition(".")
        setattr(b.get_submodule(module_path), leaf, nn.Parameter(numbers.clone()))
    return a, b, inputs(torch.Generator().manual_seed(3))


def _parameter_names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters(remove_duplicate=False)]


def _differs(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        a, b, inputs = pair_of(mutant, Path(folder))
        try:
            one, other = a(*inputs), b(*inputs)
        except Exception:  # sizes that do not fit: such a fault needs no debugger
            return False
    if not isinstance(other, torch.Tensor):  # a sum that is no tensor any more: neither
        return False
    if one.shape != other.shape or not other.isfinite().all():
        return one.shape != other.shape
    return bool((one - other).norm() > LEAST_CHANGE * one.norm())


def _alarm(mutant: Mutant, folder: Path) -> str:
    """Return what is found in a port with other names and a healthy rewrite alone."""
    a, b, inputs = pair_of(mutant, folder, sound=True)
    first = next(iter(fxdebug.compare_models(a, b, inputs).findings), None)
    return "" if first is None else f"{mutant.model}, {mutant.rewrite}: {first.path} {first.op} {first.because}"


def judged(mutant: Mutant) -> Verdict:
    """Compare a mutant with its reference and judge what is told first."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        a, b, inputs = pair_of(mutant, Path(folder))
        first = next(iter(fxdebug.compare_models(a, b, inputs).findings), None)
        alarm = _alarm(mutant, Path(folder)) if mutant.names else ""
    if first is None:
        return Verdict(mutant, False, "equal", "nothing", alarm)
    said = f"{first.path or '(root)'} | {first.op} | {first.kind} | {first.because}"
    modules = dict(b.named_modules())
    renamed = dict(zip((name for name, _ in a.named_modules()), modules))
    if mutant.kind in WEIGHTS:
        wanted = {renamed[name.rpartition(".")[0]] for name in mutant.weights}
        wanted |= {path.rpartition(".")[0] for path in wanted}
    else:
        name = mutant.names.get(mutant.place, mutant.place)
        wanted = {path for path, module in modules.items() if type(module).__name__ == name}
        wanted |= {f"{path}.{child}".lstrip(".") for path in wanted for child, _ in modules[path].named_children()}
    place = first.path in wanted
    back = {new: old for old, new in mutant.names.items()}
    told = re.sub(r"\bz[ac]\d+\b", lambda found: back.get(found[0], found[0]), f"{first.because}", flags=re.IGNORECASE)
    if not re.search(mutant.right, told) and re.search(mutant.ops, f"{first.op} {told}"):
        cause = "absent" if NOTHING_SAID.search(told) else "half"
    elif re.search(mutant.right, told):
        cause = "right" if place else "half"
    else:
        cause = "absent" if NOTHING_SAID.search(told) else "wrong"
    return Verdict(mutant, place, cause, said, alarm)

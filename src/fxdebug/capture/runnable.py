"""``call.fx``: the graph of a verified call as a ``torch.fx.GraphModule`` that knows when it holds.

Before it runs it looks at what it is given: the same structure, constants, dtypes and devices as when
it was made. Then it makes sure: the body runs once on fake tensors of these sizes, and the graph must match that
tape, and the calls in it must do what they do there. Where fake tensors do not tell (a question about values, a size
that depends on them) it runs on copies, each time anew. Questions about values are asked again while the graph
runs. Where anything comes out otherwise it refuses and says which assumption does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxdebug.capture.context import in_context
from fxdebug.capture.faked import checked
from fxdebug.capture.fxgraph import Absent, Built
from fxdebug.capture.interpreter import Executor, Refused, bindings
from fxdebug.capture.pattern import member
from fxdebug.capture.traits import Standing
from fxdebug.errors import UsageError

Facts = tuple[object, ...]


def facts_of(tensor: Tensor) -> Facts:
    """What Python, and operations that may return their input itself, can tell one tensor from another by."""
    layout = str(tensor.layout).removeprefix("torch.")
    stride = tuple(tensor.stride()) if tensor.layout is torch.strided else None
    lazy = tensor.is_conj() or tensor.is_neg()
    kind = type(tensor).__name__
    return kind, tuple(tensor.shape), tensor.dtype, tensor.device, layout, stride, tensor.requires_grad, lazy


@dataclass(frozen=True)
class Made:
    """The run that a graph was made in: its inputs, and the sizes that its Python looked at, by slot."""

    facts: Sequence[Facts]
    training: bool
    sizes: Mapping[int, tuple[int, ...]]


class GraphOfCall(fx.GraphModule):
    """A verified body, callable as the module's ``forward`` is; ``guards`` are the assumptions it rests on."""

    def __init__(self, built: Built, module: nn.Module, name: str, made: Made, hidden: str | None) -> None:
        super().__init__(*_renamed(_root(built, module), built.graph), class_name=type(module).__name__)
        object.__setattr__(self, "_what", (built, module, name))
        object.__setattr__(self, "_made", (made.training, tuple(range(len(made.facts))), *made.facts))
        object.__setattr__(self, "_sizes", made.sizes)
        object.__setattr__(self, "_standing", Standing(module))
        object.__setattr__(self, "_stood", ())  # how it stood when the following was found out
        object.__setattr__(self, "_proven", set())  # sizes and layouts for which the body does the same, by themselves
        object.__setattr__(self, "_inside", set())  # those for which its calls are known to do the same
        object.__setattr__(self, "_kinds", [str(kind) for kind, *_ in made.facts])
        object.__setattr__(self, "_hidden", hidden)

    @property
    def guards(self) -> list[str]:
        """The assumptions, in words."""
        built, _, _ = self._what
        return [str(guard) for guard in built.pattern.guards]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph on other inputs. Raises ``UsageError`` where it does not hold, and says why."""
        built, module, name = self._what
        try:
            slots: dict[int, Any] = {}
            bindings(built.pattern, built.pattern.args, args, slots)
            bindings(built.pattern, built.pattern.kwargs, kwargs, slots)
            if built.opaque:
                kinds = sorted({o.type.__name__ for o in built.objects.values() if isinstance(o, Absent)})
                raise Refused(f"it works on {', '.join(kinds)}, whose state is not part of the graph")
            alone = self._hidden or built.pattern.only_here
            if alone:
                raise Refused(alone)
            tensors = [slots[slot] for slot in range(built.pattern.inputs)]
            sizes = self._check(tensors, args, kwargs)
            with in_context(built.pattern.context):
                return Executor(built, module, sizes=sizes).run(*tensors)
        except Refused as error:
            raise UsageError(f"the graph of {name} does not hold here: {error}") from None

    def recompile(self) -> Any:
        """Make the code. Names that Python's syntax has no place for leave a graph that runs without it."""
        try:
            return super().recompile()
        except (SyntaxError, ValueError):
            return None

    def _check(self, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> Mapping[int, tuple[int, ...]] | None:
        """Sizes and values for which the body takes the same path. The sizes of the run, if nothing else is known."""
        built, module, _ = self._what
        first = {id(tensor): place for place, tensor in reversed([*enumerate(tensors)])}
        which = tuple([first[id(tensor)] for tensor in tensors])  # Python can tell whether two are one and the same
        key = (module.training, which, *map(facts_of, tensors))
        self._forget_where_anything_was_set()
        if key in self._proven:
            return None
        for kind, tensor in zip(self._kinds, tensors):
            if type(tensor).__name__ != kind:
                raise Refused(f"it was made with a {kind} where a {type(tensor).__name__} is given")
        found = checked(built, module, args, kwargs, tensors, inside=key not in self._inside)
        if found.failed and key == self._made:
            return self._sizes
        if found.problem is not None:
            raise Refused(found.problem)
        self._inside.add(key)
        if not found.by_values:
            self._proven.add(key)
        return None

    def _forget_where_anything_was_set(self) -> None:
        """What was found out holds as long as all stands as it stood then."""
        stands = self._standing.now()
        if stands != self._stood:
            object.__setattr__(self, "_stood", stands)
            self._proven.clear()
            self._inside.clear()


def _root(built: Built, module: nn.Module) -> dict[str, Any]:
    """What the graph's attributes and children are, by target."""
    found: dict[str, Any] = {}
    for node in built.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            target = str(node.target)
            held = built.objects.get(target)
            found[target] = member(module, target) if held is None else held
    return found


def _renamed(root: dict[str, Any], graph: fx.Graph) -> tuple[dict[str, Any], fx.Graph]:
    """The same, where nothing has a name that a ``GraphModule`` has for itself: a buffer called ``code``, say."""
    taken = {target: f"{target.partition('.')[0]}_{target}" for target in root if _is_taken(target.partition(".")[0])}
    if not taken:
        return root, graph
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    for node in copy.nodes:
        if node.op in ("get_attr", "call_module"):
            node.target = taken.get(str(node.target), node.target)
    return {taken.get(target, target): held for target, held in root.items()}, copy


def _is_taken(name: str) -> bool:
    return hasattr(GraphOfCall, name) or name in ("training", "graph", "_graph", "meta")

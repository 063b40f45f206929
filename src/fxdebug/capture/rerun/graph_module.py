"""``call.fx``: the graph of a verified call as a ``torch.fx.GraphModule`` that knows when it holds.

Before it runs it looks at what it is given: the same structure, constants, dtypes and devices as when
it was made. Then it makes sure: the body runs once on fake tensors of these sizes, and the graph must match that
tape, and the calls in it must do what they do there. Where fake tensors do not tell (a question about values, a size
that depends on them) it runs on copies, each time anew. Questions about values are asked again while the graph
runs. Where anything comes out otherwise it refuses and says which assumption does not hold.

Its ``graph`` is a copy of its own. Once that is changed (and recompiled) it is the user's: like everything that is
made of it, copies included, it is a plain ``torch.fx.GraphModule`` then, which asks nothing.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs.template import member
from fxdebug.capture.graphs.to_fx import Absent, Built
from fxdebug.capture.reasons import Words
from fxdebug.capture.rerun.check_inputs import checked
from fxdebug.capture.rerun.execute import Executor, GuardFailed, bindings
from fxdebug.capture.torch_state.grad_mode import in_context
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch
from fxdebug.errors import UsageError, first_line


class GraphOfCall(fx.GraphModule):
    """A verified body, callable as the module's ``forward`` is; ``guards`` are the assumptions it rests on."""

    def __init__(self, built: Built, module: nn.Module, name: str, kinds: Sequence[str], hidden: Words | None) -> None:
        super().__init__(*_renamed(_root(built, module), built.graph), class_name=type(module).__name__)
        object.__setattr__(self, "_what", (built, module, name))
        object.__setattr__(self, "_kinds", list(kinds))
        object.__setattr__(self, "_hidden", hidden)

    @property
    def guards(self) -> list[str]:
        """The assumptions, in words."""
        built, _, _ = self._what
        return [str(guard) for guard in built.pattern.guards]

    def asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the graph on other inputs. Raises ``UsageError`` where it does not hold, and says why."""
        built, module, name = self._what
        try:
            slots: dict[int, Any] = {}
            bindings(built.pattern, built.pattern.args, args, slots)
            bindings(built.pattern, built.pattern.kwargs, kwargs, slots)
            if built.opaque:
                kinds = sorted({o.type.__name__ for o in built.objects.values() if isinstance(o, Absent)})
                raise GuardFailed(reasons.WORKS_ON(kinds=", ".join(kinds)))
            alone = self._hidden or built.pattern.only_here
            if alone:
                raise GuardFailed(alone)
            tensors = [slots[slot] for slot in range(built.pattern.inputs)]
            self._check(tensors, args, kwargs)
            try:
                with in_context(built.pattern.context):
                    return Executor(built, module).run(*tensors)
            except GuardFailed:
                raise
            except Exception as error:  # of these values: the body may go on in another way
                problem = checked(built, module, args, kwargs, tensors, on_copies=True)
                if problem is None or type(error).__name__ in problem:  # so does the body
                    raise
                raise GuardFailed(reasons.RAISES(error=f"{type(error).__name__}: {first_line(error)}")) from None
        except GuardFailed as error:
            raise UsageError(reasons.HOLDS_NOT(call=name, reason=error.reason)) from None

    def __deepcopy__(self, memo: dict[int, Any]) -> fx.GraphModule:
        """A plain one, as ``copy.copy`` makes it, with parameters of its own."""
        return copy.deepcopy(copy.copy(self), memo)

    def __reduce__(self) -> Any:
        """Saved, it is a plain one."""
        return copy.copy(self).__reduce__()

    def recompile(self) -> Any:
        """Make the code. Names that Python's syntax has no place for leave a graph that runs without it."""
        made = None
        with contextlib.suppress(SyntaxError, ValueError):
            made = super().recompile()
        kind = type(self)  # torch.fx makes one for each
        code = self.__dict__.get("_code")
        if code == self.__dict__.setdefault("_verified", code):
            kind.forward = _asking(kind.forward)
        return made

    def _check(self, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> None:
        """Make sure that the body does the same for inputs like these, as everything stands now."""
        built, module, _ = self._what
        for kind, tensor in zip(self._kinds, tensors):
            if type(tensor).__name__ != kind:
                raise GuardFailed(reasons.MADE_WITH(kind=kind, given=type(tensor).__name__))
        problem = checked(built, module, args, kwargs, tensors)
        if problem is not None:
            raise GuardFailed(problem)


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
    """A copy, in which nothing has a name that a ``GraphModule`` has for itself: a buffer called ``code``, say."""
    taken = {target: f"{target.partition('.')[0]}_{target}" for target in root if _is_taken(target.partition(".")[0])}
    made = fx.Graph()
    made.output(made.graph_copy(graph, {}))
    for node in made.nodes:
        if node.op in ("get_attr", "call_module"):
            node.target = taken.get(str(node.target), node.target)
    return {taken.get(target, target): held for target, held in root.items()}, made


def _is_taken(name: str) -> bool:
    return hasattr(GraphOfCall, name) or name in ("training", "graph", "_graph", "meta")


def _asking(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that first makes sure that the graph holds. What traces or exports it gets the graph, and no more."""

    @functools.wraps(plain)
    def forward(self: GraphOfCall, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return _not_compiled(self, args, kwargs)
        if is_traced_by_torch() or any(isinstance(arg, fx.Proxy) for arg in (*args, *kwargs.values())):
            return plain(self, *args, **kwargs)
        return self.asked(args, kwargs)

    return forward


def _not_compiled(graph: GraphOfCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Inside ``torch.compile``: what is asked before the graph runs is not to be compiled with it."""
    return torch.compiler.disable(graph.asked)(args, kwargs)


_not_compiled._torchdynamo_disable = True  # type: ignore[attr-defined]

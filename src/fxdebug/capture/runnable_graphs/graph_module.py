"""``call.fx``: the graph of a verified call as a ``torch.fx.GraphModule`` that checks whether it holds.

Before it runs, it checks its arguments: the structure, constants, dtypes and devices must be those of the recorded
call. Then the body runs once on fake tensors of these sizes. The graph must match that tape, and the calls in the
graph must do what they do in the body. Where fake tensors cannot tell (a question about values, a size that depends
on them) the body runs on copies instead, each time anew. Questions about values are asked again while the graph runs.
If anything differs, it refuses and says which assumption does not hold.

Its ``graph`` is a copy of its own. Once the user changes and recompiles it, the module runs the user's code and checks
nothing, like a plain ``torch.fx.GraphModule``. Its copies are plain ``GraphModule`` objects, too.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs.names import member
from fxdebug.capture.graphs.to_fx import Absent, FxBuild, written_graph
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.replay.variables import Change, in_force
from fxdebug.capture.runnable_graphs.check_inputs import mismatch_for_inputs
from fxdebug.capture.runnable_graphs.execute import Executor, GuardFailed, inputs_of
from fxdebug.capture.tape.changed_arguments import change_arguments
from fxdebug.capture.torch_state.grad_mode import in_context
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch
from fxdebug.errors import UsageError, first_line


class GraphOfCall(fx.GraphModule):
    """A verified graph, called with the arguments of the module's ``forward``.

    ``call`` is the id of that call, ``classes`` are the class names of its input tensors. ``not_reusable``, if given,
    is the reason why the graph can be read but not run; ``surroundings`` is what its callers changed around the call,
    and in force while the graph runs. ``objects`` are modules, functions and classes among its
    arguments and operands, by their number in the template.
    """

    def __init__(
        self,
        build: FxBuild,
        module: nn.Module,
        call: str,
        classes: Sequence[str],
        not_reusable: ReasonText | None,
        objects: Mapping[int, Any],
        surroundings: Sequence[Change] = (),
    ) -> None:
        root, graph = _renamed(_root(build, module, objects), written_graph(build))
        super().__init__(root, graph, class_name=type(module).__name__)
        object.__setattr__(self, "_source", (build, module, call))
        object.__setattr__(self, "_objects", objects)
        object.__setattr__(self, "_classes", list(classes))
        object.__setattr__(self, "_not_reusable", not_reusable)
        object.__setattr__(self, "_surroundings", surroundings)

    @property
    def guards(self) -> list[str]:
        """The assumptions under which the graph holds, as text."""
        build, _, _ = self._source
        return [str(guard) for guard in build.template.guards]

    def run_checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the graph on other inputs. Raises ``UsageError`` with the reason where it does not hold."""
        with in_force(self._surroundings):
            return self._run_checked(args, kwargs)

    def _run_checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        build, module, call = self._source
        template = build.template
        try:
            objects = dict(self._objects)
            inputs = inputs_of(template, args, kwargs, objects)
            absent = [each for each in build.constants.values() if isinstance(each, Absent)]
            kinds = sorted({each.type.__name__ for each in absent if each.number not in objects})
            if kinds:
                raise GuardFailed(reasons.WORKS_ON(kinds=", ".join(kinds)))
            not_reusable = self._not_reusable or template.not_reusable
            if not_reusable:
                raise GuardFailed(not_reusable)
            self._check(inputs, args, kwargs)
            try:
                with in_context(template.context):
                    output = Executor(build, module, objects=objects).run(*inputs)
                return change_arguments(output, args, kwargs)
            except GuardFailed:
                raise
            except Exception as error:  # for these values: the body may catch it, or take another branch
                problem = mismatch_for_inputs(build, module, args, kwargs, inputs, self._objects, on_copies=True)
                if problem is None or type(error).__name__ in problem:  # the body raises it, too
                    raise
                raise GuardFailed(reasons.RAISES(error=f"{type(error).__name__}: {first_line(error)}")) from None
        except GuardFailed as error:
            raise UsageError(reasons.HOLDS_NOT(call=call, reason=error.reason)) from None

    def __deepcopy__(self, memo: dict[int, Any]) -> fx.GraphModule:
        """Return a plain ``GraphModule``, as ``copy.copy`` does, with parameters of its own."""
        return copy.deepcopy(copy.copy(self), memo)

    def __reduce__(self) -> Any:
        """Save it as a plain ``GraphModule``."""
        return copy.copy(self).__reduce__()

    def recompile(self) -> Any:
        """Write the code of the graph. If that has a name which Python does not accept, the graph runs without code."""
        python_code = None
        with contextlib.suppress(SyntaxError, ValueError):
            python_code = super().recompile()
        kind = type(self)  # torch.fx makes a class for each instance
        code = self.__dict__.get("_code")
        if code == self.__dict__.setdefault("_verified", code):
            kind.forward = _checked_forward(kind.forward)
        return python_code

    def _recompile_submodules(self) -> list[Any]:
        """Leave the ``torch.fx.GraphModule`` objects among its children alone: they are the model's own."""
        return []

    def _check(self, inputs: Sequence[Tensor | int], args: Any, kwargs: Any) -> None:
        """Make sure that the body does the same for inputs like these, with the module as it is now."""
        build, module, _ = self._source
        for name, tensor in zip(self._classes, inputs):
            if type(tensor).__name__ != name:
                raise GuardFailed(reasons.MADE_WITH(kind=name, given=type(tensor).__name__))
        problem = mismatch_for_inputs(build, module, args, kwargs, inputs, self._objects)
        if problem is not None:
            raise GuardFailed(problem)


def _root(build: FxBuild, module: nn.Module, objects: Mapping[int, Any]) -> dict[str, Any]:
    """Return the attributes and children that the graph names, by target."""
    root: dict[str, Any] = {}
    for node in build.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            target = str(node.target)
            constant = build.constants.get(target)
            if type(constant) is Absent:
                constant = objects.get(constant.number, constant)
            root[target] = member(module, target) if constant is None else constant
    return root


def _renamed(root: dict[str, Any], graph: fx.Graph) -> tuple[dict[str, Any], fx.Graph]:
    """Return a copy in which targets that bear a name of ``GraphModule`` itself (``code``, say) are renamed."""
    taken = {target: f"{target.partition('.')[0]}_{target}" for target in root if _is_taken(target.partition(".")[0])}
    for target in root:  # torch.fx would put an attribute of a child into the child, which has it already
        parts = target.split(".")
        if any(".".join(parts[:count]) in root for count in range(1, len(parts))):
            taken[target] = "_".join(parts)
    renamed = fx.Graph()
    renamed.output(renamed.graph_copy(graph, {}))
    for node in renamed.nodes:
        if node.op in ("get_attr", "call_module"):
            node.target = taken.get(str(node.target), node.target)
    return {taken.get(target, target): attribute for target, attribute in root.items()}, renamed


def _is_taken(name: str) -> bool:
    return hasattr(GraphOfCall, name) or name in ("training", "graph", "_graph", "meta")


def _checked_forward(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a forward that first makes sure that the graph holds. Tracing or exporting it gives the graph alone."""

    @functools.wraps(plain)
    def forward(self: GraphOfCall, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return _not_compiled(self, args, kwargs)
        if is_traced_by_torch() or any(isinstance(arg, fx.Proxy) for arg in (*args, *kwargs.values())):
            return plain(self, *args, **kwargs)
        return self.run_checked(args, kwargs)

    return forward


def _not_compiled(graph: GraphOfCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run inside ``torch.compile``: the checks before the graph must not be compiled with it."""
    return torch.compiler.disable(graph.run_checked)(args, kwargs)


_not_compiled._torchdynamo_disable = True  # type: ignore[attr-defined]

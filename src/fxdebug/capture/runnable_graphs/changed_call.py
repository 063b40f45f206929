"""Execute the verified graph of one call on the call's inputs, with some values changed."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn

from fxdebug.capture.graphs.to_fx import FxBuild
from fxdebug.capture.runnable_graphs.execute import Executor, GuardFailed
from fxdebug.capture.runnable_graphs.graph_module import GraphOfCall
from fxdebug.capture.runnable_graphs.graphs_of_run import LazyGraphs
from fxdebug.capture.runnable_graphs.node_values import given_sizes
from fxdebug.capture.torch_state.grad_mode import in_context
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest

Changes = Mapping[str, Callable[[Any], Any]]
"""Functions of the arguments and results of a graph, by the names of its nodes."""


class BodyOfCall(nn.Module):
    """A module whose forward is the verified graph of a call; ``body`` is the module that was called.

    Modules below it have the paths that they have in the model, so that calls are named as in its tree.
    """

    body: nn.Module

    def __init__(self, graph: GraphOfCall, call: str, path: str, changes: Changes) -> None:
        super().__init__()
        build, module, _ = graph._source
        object.__setattr__(self, "body", module)
        self._modules[path] = module  # add_module would refuse the dots
        self._build: FxBuild = build
        self._objects = dict(graph._objects)
        self._call = call
        known = [node.name for node in build.nodes if node.op != "output"]
        arguments = {_in_python(node.name): node.name for node in build.nodes if node.op == "placeholder"}
        self._changes = {name if name in known else arguments.get(name, name): changes[name] for name in changes}
        for name in self._changes:
            if name not in known:
                has = f" It has {', '.join(map(_in_python, known[:12]))}{' …' if len(known) > 12 else ''}."
                raise NotFound(f"the graph of {call} has no {name!r}.{nearest(name, known) or has}")
        type(self).__name__ = type(module).__name__

    def forward(self, *inputs: Any) -> Any:
        """Run the graph."""
        try:
            with in_context(self._build.template.context):
                return _ChangingExecutor(self._build, self.body, self._objects, self._changes).run(*inputs)
        except GuardFailed as error:
            raise UsageError(f"with these changes the graph of {self._call} does not hold: {error.reason}") from None


def _in_python(name: str) -> str:
    """Return the name of an argument as the forward has it: torch.fx gives names of Python's another end.

    >>> _in_python("input_1"), _in_python("x_1")
    ('input', 'x_1')
    """
    own = name.removesuffix("_1")
    return own if own != name and hasattr(builtins, own) else name


class _ChangingExecutor(Executor):
    """Runs a verified graph, and changes results of its nodes on the way."""

    def __init__(self, build: FxBuild, module: nn.Module, objects: Mapping[int, Any], changes: Changes) -> None:
        super().__init__(build, module, objects=objects)
        self._changes = changes

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and change its result."""
        result = super().run_node(n)
        change = self._changes.get(n.name)
        return result if change is None else change(result)


class VerifiedBody:
    """The graph of one verified call of a run in this process, to be run on what the call was given.

    ``name`` is how errors name the call. Raises ``UsageError``, with the reason, where its graph is not verified.

    >>> import fxdebug
    >>> trace = fxdebug.fx_debug(nn.ReLU(), torch.ones(2), values="tensors")
    >>> body = VerifiedBody(trace.graph_source, trace.root, "the model")
    >>> body.with_changes({"relu": lambda out: out + 1})(*body.inputs(trace.tensor)).tolist()
    [2.0, 2.0]
    """

    def __init__(self, source: object, call: Call, name: str) -> None:
        if not isinstance(source, LazyGraphs):
            raise UsageError(f"{name} belongs to a run that was loaded from disk, without the model")
        self._graphs, self._call, self._name = source, call, name
        self._graph = source.fx(call)
        self.module: nn.Module = self._graph._source[1]
        self.needs_gradient = self._graph._source[0].template.context[0]  # did the call run with gradients?

    def with_changes(self, changes: Changes) -> nn.Module:
        """Return a module that runs the graph with changes, under the name of the class of the call's module."""
        kind: type[BodyOfCall] = type("BodyOfCall", (BodyOfCall,), {})
        return kind(self._graph, self._name, self._call.path, changes)

    def inputs(self, tensor: Callable[[Value], torch.Tensor]) -> tuple[Any, ...]:
        """Return what the graph is run on, as the call was given it; ``tensor`` reads kept data."""
        verified = self._graphs.verified_call(self._call.index)
        assert verified is not None and verified.template is not None
        template, tape = verified.template, verified.tape
        tensors = [
            tensor(tape.input_values[tensor_id])
            for tensor_id in (verified.tensor_ids or [])[: template.inputs]
            if tensor_id is not None
        ]
        sizes = given_sizes(template, tape)
        return (*tensors, *[sizes[number] for number in range(len(template.size_names))])

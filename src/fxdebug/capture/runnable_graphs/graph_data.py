"""A ``torch.fx`` graph as plain data with its code, the form that traces and files keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.fx
from torch import nn

from fxdebug.capture.graphs.symbolic_size import Size, plain
from fxdebug.capture.graphs.to_fx import Absent, FxBuild, shown_graph
from fxdebug.capture.runnable_graphs.node_values import keys_of, plain_item
from fxdebug.capture.tensors.type_names import type_name
from fxdebug.data.graphs import Graph, Op, Operand, Ref
from fxdebug.data.values import Group, Item

MOST_AS_DATA = 64  # per graph: forms with other classes of children, where modules share a body and not those


def graph_of(build: FxBuild, module: nn.Module) -> Graph:
    """Return a graph as plain data. All modules whose children have the same classes share one."""
    children = tuple([_class_of_child(node, build, module) for node in build.calls])
    graph = build.as_data.get(children)
    if graph is None:
        if len(build.as_data) >= MOST_AS_DATA:
            build.as_data.clear()
        graph = build.as_data[children] = _as_data(build, dict(zip(build.calls, children)))
    return graph


def _as_data(build: FxBuild, children: Mapping[torch.fx.Node, str]) -> Graph:
    ops = tuple([_op(node, build, children.get(node)) for node in build.shown])
    try:
        code = shown_graph(build).python_code("self").src.strip()
    except Exception as error:  # torch.fx cannot write the name of a target: the graph is kept without its code
        code = f"# torch.fx cannot write this graph as code: {error}"
    return Graph(ops, code)


def _op(node: torch.fx.Node, build: FxBuild, child: str | None) -> Op:
    index = build.entry_of.get(node)
    context = build.template.context if index is None else build.template.entries[index].context
    gradients, _, autocast = context
    given = node.args
    if node.op == "output" and build.shown is not build.nodes:
        given = node.args[0].args[:1]  # type: ignore[union-attr, assignment]  # the result alone
    args = tuple([operand_of(arg, build) for arg in given])
    kwargs: Mapping[str, Operand] = {name: operand_of(arg, build) for name, arg in node.kwargs.items()}
    dtypes = ", ".join(f"{device} {str(dtype)[6:]}" for device, dtype in autocast) if autocast else None
    return Op(node.name, node.op, child or _short_name(node), _target(node), args, kwargs, gradients, dtypes)


def _registered(module: nn.Module, path: str) -> nn.Module | None:
    """Return a submodule by its path; an attribute of the same name (``forward``) does not hide it."""
    for name in path.split(".") if path else ():  # a module may call itself
        inner = module._modules.get(name)
        if inner is None:
            return None
        module = inner
    return module


def _class_of_child(node: torch.fx.Node, build: FxBuild, module: nn.Module) -> str:
    child = build.constants.get(str(node.target))
    return type_name(type(_registered(module, str(node.target)) if child is None else child))


def _short_name(node: torch.fx.Node) -> str:
    if node.op == "call_function":
        function = getattr(node.target, "__wrapped__", node.target)
        if function is getattr and len(node.args) > 1:
            return str(node.args[1])
        return str(getattr(function, "__name__", type(function).__name__)).strip("_")
    return str(node.target).strip("_") if node.op == "call_method" else node.op


def _target(node: torch.fx.Node) -> str:
    if node.op != "call_function":
        return str(node.target)
    function: Any = getattr(node.target, "__wrapped__", node.target)
    home = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", type(function).__name__)
    return f"{home}.{name}"


def operand_of(argument: Any, build: FxBuild) -> Operand:
    """Return an argument of a ``torch.fx`` node as plain data."""
    if isinstance(argument, torch.fx.Node):
        constant = build.constants.get(str(argument.target)) if argument.op == "get_attr" else None
        if isinstance(constant, (Absent, type, torch.Generator)):
            return plain_item(constant.type if isinstance(constant, Absent) else constant)
        return Ref(argument.name)
    if isinstance(argument, Size):
        return plain(argument)
    if isinstance(argument, (list, tuple)):
        kind = "list" if isinstance(argument, list) else "tuple"
        return Group("sequence", kind, tuple([operand_of(item, build) for item in argument]))  # type: ignore[misc]
    if isinstance(argument, dict):
        items: tuple[Item, ...] = tuple([operand_of(item, build) for item in argument.values()])  # type: ignore[misc]
        return Group("mapping", "dict", items, keys_of(argument))
    if isinstance(argument, slice):
        bounds = (argument.start, argument.stop, argument.step)
        return Group("sequence", "slice", tuple([operand_of(bound, build) for bound in bounds]))  # type: ignore[misc]
    return plain_item(argument)

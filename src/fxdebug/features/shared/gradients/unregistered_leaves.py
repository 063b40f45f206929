"""Find what learns in a model and is none of its parameters: layers in lists, tensors, layers of a forward."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

from fxdebug.capture.probe import members, named_tensors, special_tensors
from fxdebug.features.shared.records.gradients import Unregistered

Found: TypeAlias = tuple[Unregistered, list[Tensor]]

DEEPEST = 4  # lists in lists that are searched
_REGISTRIES = ("_modules", "_parameters", "_buffers")


class UnregisteredLeaves:
    """Compares the leaves of autograd's graph with the parameters of a model, for one forward.

    What the forward is given is left out, with all that it was made from: attacks and generators learn there. So are
    the weights of a model that is distributed over ranks: its forward makes others of them.

    >>> import torch
    >>> model = nn.Module()
    >>> model.layers = [nn.Linear(2, 2, bias=False)]
    >>> x = torch.ones(1, 2)
    >>> leaves = UnregisteredLeaves(model, x)
    >>> [(one.path, one.type, one.elements) for one, _ in leaves.found(model.layers[0](x))]
    [('layers[0]', 'Linear', 4)]
    """

    def __init__(self, model: nn.Module, given: Any) -> None:
        self._model = model
        self._given = [tensor for _, tensor in named_tensors(given)]
        self._own = list(members.parameters_of(model))
        self._held = list(_held(model))
        self._ran: list[nn.Module] = []

    def ran(self, module: nn.Module) -> None:
        """Note that a module ran which was not in the model when the forward began."""
        if any(parameter is not None for parameter in module._parameters.values()):
            self._ran.append(module)

    def found(self, output: Any) -> list[Found]:
        """Return what learns without being registered, by the path of its holder, each with its tensors."""
        if special_tensors.has_sharded_weights(self._model) or any(
            type(p).__name__ == "FlatParameter" for p in self._own
        ):
            return []
        known = {id(tensor) for tensor in (*self._own, *members.parameters_of(self._model), *self._given)}
        leaves = {id(leaf): leaf for leaf in _leaves(output, self._given) if id(leaf) not in known}
        if not leaves:
            return []
        places = {id(tensor): (path, kind, False) for path, kind, tensor in self._held}
        for path, kind, tensor in _held(self._model):
            if kind:
                places.setdefault(id(tensor), (path, kind, True))
        for module in self._ran:
            kind = type(module).__name__
            for parameter in module._parameters.values():
                places.setdefault(id(parameter), (f"<{kind}>", kind, True))
        groups: dict[tuple[str, str, bool], list[Tensor]] = {}
        for leaf in leaves.values():
            if id(leaf) in places:
                groups.setdefault(places[id(leaf)], []).append(leaf)
        return [
            (Unregistered(path, kind, sum(tensor.numel() for tensor in tensors), new), tensors)
            for (path, kind, new), tensors in sorted(groups.items())
        ]


def outside_of(found: Sequence[Found], optimised: Container[int]) -> tuple[Unregistered, ...]:
    """Return what no optimizer has, by the ids of the tensors that some optimizer has.

    >>> import torch
    >>> one, tensor = Unregistered("scale", "", 1, False), torch.ones(1)
    >>> outside_of([(one, [tensor])], {id(tensor)}), len(outside_of([(one, [tensor])], ()))
    ((), 1)
    """
    return tuple([one for one, tensors in found if not any(id(tensor) in optimised for tensor in tensors)])


def _leaves(output: Any, given: list[Tensor]) -> Iterator[Tensor]:
    """Yield the leaves behind a model's output that are not behind what it was given."""
    seen = {tensor.grad_fn for tensor in given if tensor.grad_fn is not None}
    pending: list[Any] = [tensor.grad_fn for _, tensor in named_tensors(output)]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            yield variable
        pending.extend(inner for inner, _ in node.next_functions)


def _held(model: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    """Yield the leaves in plain attributes of a model's modules: the path, the class of the module there, the leaf."""
    registered = {id(module): module for module in members.modules_of(model)}
    for path, module in members.named_modules_of(model):
        for name, content in vars(module).items():
            if name not in _REGISTRIES:
                yield from _inside(f"{path}.{name}" if path else name, content, registered, DEEPEST)


def _inside(
    path: str, content: Any, registered: Mapping[int, nn.Module], depth: int
) -> Iterator[tuple[str, str, Tensor]]:
    if isinstance(content, nn.Module):
        inner = list(members.modules_of(content))
        if not any(id(module) in registered for module in inner):  # a part of the model, or what the model is a part of
            yield from ((path, type(content).__name__, parameter) for parameter in members.parameters_of(content))
    elif isinstance(content, Tensor):
        if content.requires_grad and content.is_leaf:
            yield path, "", content
    elif depth and isinstance(content, (list, tuple)):
        for place, item in enumerate(content):
            yield from _inside(f"{path}[{place}]", item, registered, depth - 1)
    elif depth and isinstance(content, dict):
        for key, item in list(content.items()):
            yield from _inside(f"{path}[{key!r}]", item, registered, depth - 1)

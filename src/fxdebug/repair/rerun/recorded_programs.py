"""Compute what a recorded run returned from what it was given, without its model: by its graphs and its weights.

The graphs hold for the inputs of the run, and run on these alone. Whoever asks for more proves it first:
:meth:`RecordedProgram.is_as_recorded`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.data.calls import Call
from fxdebug.data.graphs import Op, Operand, Ref
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Thing, Value, leaves, rebuilt
from fxdebug.query.network import network_of
from fxdebug.repair.rerun.replaced_operations import Ran, ReplacedOperations
from fxdebug.repair.rerun.tensors_at_hand import TensorsAtHand
from fxdebug.repair.rerun.torch_functions import function_of

MOST_ELEMENTS = 1 << 29  # of all results together, which are held at once: 2 GiB in float32
_MAKERS: dict[str, Any] = {"list": list, "tuple": tuple, "slice": lambda items: slice(*items)}


class NotComputed(Exception):
    """An operation of a recorded run cannot be computed from what its graphs and files have."""


class RecordedProgram:
    """The operations of a run in execution order; ``name`` is its side of a comparison, ``a`` or ``b``."""

    def __init__(self, trace: TraceData, name: str) -> None:
        self.trace, self.name = trace, name
        self._hand = TensorsAtHand(trace, name)

    @classmethod
    def of(cls, trace: TraceData, name: str) -> RecordedProgram | None:
        """Return the program of a run; ``None`` where it kept no tensors or no graphs, or is too large to hold.

        >>> import torch, fxdebug
        >>> run = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2), values="tensors")
        >>> RecordedProgram.of(run, "a").is_as_recorded()
        True
        >>> RecordedProgram.of(fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2)), "a") is None
        True
        """
        kept = trace.settings.get("values") == "tensors" and trace.data is not None
        if not kept or trace.call_graphs is None or trace.error is not None or trace.root.outputs is None:
            return None
        return cls(trace, name) if sum(value.numel for value in trace.values) <= MOST_ELEMENTS else None

    def run(self, stepper: ReplacedOperations | None = None) -> list[Tensor]:
        """Return what the run returned, in the order of its outputs, with some operations replaced.

        Raises ``NotComputed`` where an operation is no function of torch, or its tensors were not kept, and what
        torch raises.
        """
        with torch.no_grad():
            return _Execution(self.trace, self._hand, stepper).returned()

    def is_as_recorded(self) -> bool:
        """Do the operations return what the run returned, to the last bit?"""
        try:
            again = self.run()
            kept = [self._hand.given(value) for value in self.trace.root.outputs or ()]
        except Exception:  # a graph from a file may ask for anything
            return False
        return bool(kept) and all(_is_same(one, other) for one, other in zip(kept, again))


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())


class _Execution:
    """One execution of all calls of a run; tensors are known by the numbers of their values."""

    def __init__(self, trace: TraceData, hand: TensorsAtHand, stepper: ReplacedOperations | None) -> None:
        self._trace, self._hand, self._stepper = trace, hand, stepper
        self._network = network_of(trace)
        self._trained = {name for each in trace.parameters if each.kind == "parameter" for name in each.names}
        self._tensors: dict[int, Tensor] = {}

    def returned(self) -> list[Tensor]:
        """Return what the run returned."""
        root = self._trace.root
        for value in root.inputs:
            self._tensors[value.number] = self._hand.given(value).clone()
        self._number(None if root.outputs is None else root.outputs.item, self._call(root))
        return [self._tensor(value) for value in root.outputs or ()]

    def _call(self, call: Call) -> Any:
        """Return what a call returns. Raises ``NotComputed`` for one of which no operations were recorded."""
        body = self._network.bodies[call.index]
        if body is None or not self._network.steps(call):
            raise NotComputed(self._network.call_id(call))
        children, known, own = iter(body.calls), dict[str, Any](), self._network.call_id(call)
        for item, step in zip(body.results, self._network.steps(call)):
            written = self._network.written.get(f"{own}/{step.name}", ())
            if step.kind == "output":
                return self._operand(step.args[0], known) if step.args else None
            if step.kind == "call_module":
                result = self._call(self._trace.calls[next(children)])
            elif step.kind in ("placeholder", "get_attr") or not (written or any(leaves(item))):
                result = self._item(item)  # sizes and other answers are those of this run
            else:
                result = self._computed(call, step, known, written)
            known[step.name] = result
            self._number(item, result)
        return None

    def _computed(self, call: Call, step: Op, known: Mapping[str, Any], written: Sequence[Value]) -> Any:
        function = function_of(step)
        if function is None or step.autocast is not None:
            raise NotComputed(step.target)
        args = tuple([self._operand(arg, known) for arg in step.args])
        kwargs = {name: self._operand(arg, known) for name, arg in step.kwargs.items()}
        result = function(*args, **kwargs)
        if self._stepper is not None:
            result = self._stepper.replaced((call.index, step.name), Ran(function, args, kwargs, result))
        for value in written:
            changed = args[0] if args else None
            if not isinstance(changed, Tensor) or tuple(changed.shape) != value.shape:
                raise NotComputed(step.target)
            self._tensors[value.number] = changed
        return result

    def _number(self, item: Item, result: Any) -> None:
        """Keep the tensors of a result by the numbers of the values that they are."""
        if isinstance(item, Value) and isinstance(result, Tensor):
            self._tensors[item.number] = result
        elif isinstance(item, Group) and isinstance(result, (list, tuple)) and len(result) == len(item.items):
            for inner, each in zip(item.items, result):
                self._number(inner, each)
        elif isinstance(item, Group) and isinstance(result, dict) and len(result) == len(item.items):
            for inner, each in zip(item.items, result.values()):
                self._number(inner, each)

    def _operand(self, operand: Operand, known: Mapping[str, Any]) -> Any:
        if isinstance(operand, Ref):
            return known[operand.node]
        if isinstance(operand, Group):
            return _made(operand, [self._operand(item, known) for item in operand.items])
        return self._item(operand)

    def _item(self, item: Item) -> Any:
        return rebuilt(item, self._leaf, lambda group, items: _made(group, list(items)))

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return self._tensor(leaf)
        if not isinstance(leaf, Thing):
            return leaf
        if leaf.text == "...":
            return ...
        if leaf.type == "device":
            return torch.device("cpu")  # where tensors of files are
        known = getattr(torch, leaf.text.removeprefix("torch."), None)
        if leaf.text.startswith("torch.") and isinstance(known, (torch.dtype, torch.layout, torch.memory_format)):
            return known
        raise NotComputed(leaf.type)

    def _tensor(self, value: Value) -> Tensor:
        """Return a tensor that was computed, or a weight. What a run kept of results would hide edits before them."""
        if value.number not in self._tensors:
            if value.name is None:
                raise NotComputed(value.label)
            tensor = self._hand.weight(value).clone()
            self._tensors[value.number] = nn.Parameter(tensor, False) if value.name in self._trained else tensor
        return self._tensors[value.number]


def _made(group: Group, items: list[Any]) -> Any:
    """Return a container of the class of a group, with these items."""
    if group.type in _MAKERS:
        return _MAKERS[group.type](items)
    if group.type == "dict":
        return dict(zip(group.keys or (), items))
    raise NotComputed(group.type)

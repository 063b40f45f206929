"""Rebuild the weights of every attention of a run that is not recorded, while its query, key, value and mask are there.

The functions are seen by a ``TorchFunctionMode``. Each map goes to ``found`` at once, so that the tensors it was made
from need not be kept. Where a mode would switch off a fused kernel, the module runs without it, and then once more
with it: the difference of both results is the error of its maps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.probe import MeasuringMode, UserLines, named_tensors, untracked
from fxdebug.errors import first_line, with_article
from fxdebug.features.attention.seen.rebuilt import (
    Rebuilt,
    difference,
    of_weights,
    projections,
    rebuild_fused,
    rebuild_multi_head,
)
from fxdebug.features.shared.times import timed_runs
from fxdebug.operators.attention import FUSED, MULTI_HEAD, PRODUCTS, SOFTMAX, OutputFlow, SoftmaxFlow, bound
from fxdebug.operators.names import canonical


@dataclass(frozen=True)
class SeenAttention:
    """One attention of a run: the position of the call it ran in, its operation, its line, and its weights."""

    call: int
    op: str
    source: str | None
    rebuilt: Rebuilt
    dropped: bool = False


class AttentionInputs(MeasuringMode):
    """Hands each attention of the thread that runs the model to ``found``, with the weights it used.

    ``calls`` is the observer that knows the call which is open.
    """

    def __init__(self, calls: timed_runs.CallTimes, found: Callable[[SeenAttention], None]) -> None:
        super().__init__(calls.path)
        self.bytes = 0
        self._calls, self._found = calls, found
        self._softmax: SoftmaxFlow[Tensor] = SoftmaxFlow(lambda a, b: a is b, lambda tensor: tuple(tensor.shape))
        self._outputs: OutputFlow[Tensor] = OutputFlow(lambda a, b: a is b)
        self._waiting: dict[int, SeenAttention] = {}  # until the output projection was seen
        self._count = 0
        self._lines = UserLines()
        self._again: list[tuple[float, float]] | None = None

    def after_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any) -> None:
        """Follow an operation: it may be an attention, or a part of one."""
        self.guard("an attention", self._look, canonical(self.name_of(func)), args, kwargs, result)

    def _look(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if name == FUSED:
            arguments = bound(FUSED, args, kwargs)
            if self._has_data(result):
                with untracked():
                    rebuilt = rebuild_fused(arguments, result)
                self._add(name, rebuilt, result, dropped=bool(arguments.get("dropout_p")))
        elif name == MULTI_HEAD:
            arguments = bound(MULTI_HEAD, args, kwargs)
            if self._has_data(result[0]):
                dropped = bool(arguments.get("dropout_p")) and bool(arguments.get("training", True))
                with untracked():
                    rebuilt = rebuild_multi_head(arguments, result[0])
                self._add(name, rebuilt, None, dropped=dropped)
        elif isinstance(result, Tensor):
            self._follow(name, args, kwargs, result)

    def _follow(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> None:
        operands = [tensor for _, tensor in named_tensors((*args, *kwargs.values()))]
        whole = [*args, kwargs["dim"]] if "dim" in kwargs else list(args)
        product = self._softmax.step(name, whole, operands, result)
        if product is not None and self._has_data(result):
            with untracked():
                rebuilt = of_weights(product.weights, result if name in PRODUCTS else None)
            self._add(SOFTMAX, rebuilt, result, dropped=product.dropped)
            return
        attention = self._outputs.step(name, operands, result)
        if attention is not None and attention in self._waiting:
            self._project(attention, name, operands)

    def _project(self, attention: int, name: str, operands: Sequence[Tensor]) -> None:
        seen = self._waiting.pop(attention)
        weight = operands[2] if name == "addmm" and len(operands) > 2 else operands[1]
        outputs = seen.rebuilt.outputs
        if outputs is not None:
            with untracked():
                norms = projections(outputs, weight, columns_first=name != "linear")
            seen = replace(seen, rebuilt=replace(seen.rebuilt, projected=norms))
        self._found(seen)

    def _has_data(self, tensor: Any) -> bool:
        if isinstance(tensor, Tensor) and type(tensor) in (Tensor, nn.Parameter) and not tensor.is_nested:
            return tensor.device.type != "meta"
        self.guard.note(f"an attention on {with_article(type(tensor).__name__)} has no map: its data cannot be read")
        return False

    def _add(self, op: str, rebuilt: Rebuilt, output: Tensor | None, *, dropped: bool) -> None:
        if dropped and op != SOFTMAX:  # the result has other weights than the ones before dropout
            rebuilt = replace(rebuilt, error=None, tolerance=None)
        source = self._lines.asking(sys._getframe(1))()
        seen = SeenAttention(self._calls.innermost() or 0, op, source, rebuilt, dropped)
        self.bytes += rebuilt.bytes
        self.flush()
        if output is None:
            self._found(seen)
            return
        self._count += 1
        self._waiting[self._count] = seen
        self._outputs.begin(output, self._count)

    def flush(self) -> None:
        """Hand over what still waits for its output projection."""
        waiting, self._waiting = list(self._waiting.values()), {}
        for seen in waiting:
            self._found(seen)

    def around(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a forward; inside a fused kernel that runs again, this mode stays on."""
        return run(*args, **kwargs) if self._again is not None else super().around(module, run, args, kwargs)

    def after_fused(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Run a fused module by its separate operations; its attentions have the error of the whole result."""
        found, held = self._found, list[SeenAttention]()
        self._again, self._found = [], held.append
        try:
            again = run(*args, **kwargs)
            self.flush()
        except Exception as failed:
            self.guard.note(f"its fused kernel has no maps: {type(failed).__name__}: {first_line(failed)}")
            return
        finally:
            self._again, self._found = None, found
        with untracked():
            apart = difference(again, result)
        error, tolerance = (None, None) if apart is None else apart
        for seen in held:
            found(replace(seen, rebuilt=replace(seen.rebuilt, error=error, tolerance=tolerance)))

"""Run a model with another run's inputs for each call, so that each call is judged by itself.

A call that has a counterpart in the other run gets the counterpart's inputs, and passes the counterpart's outputs on to
its caller. The plan for that comes from ``comparison/pairing/replay_plan``.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.torch_state.mode_stack import allows_mode_around
from fxdebug.capture.torch_state.module_members import named_modules_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value

Plan = Mapping[tuple[str, int], Mapping[str, Value]]  # (path, number) of a call → slot → the value to put there


class InputReplay:
    """A block in which the calls of ``model`` get the inputs, and pass on the outputs, of another run.

    ``trace`` is that run, with its tensors kept; ``inputs`` and ``outputs`` say which of its values go where. Each
    tensor is converted to the dtype and device of the tensor that it replaces. A tensor of another shape, of a
    subclass, or for which ``keeps(new, own)`` is true is not replaced. ``replayed`` counts the calls for which
    something is planned.
    """

    def __init__(
        self, model: nn.Module, trace: TraceData, inputs: Plan, outputs: Plan, keeps: Callable[[Tensor, Tensor], bool]
    ) -> None:
        self._trace, self._inputs, self._outputs, self._keeps = trace, inputs, outputs, keeps
        self._hooked = _hookable(model)
        keys = [key for key in inputs if key[0] in self._hooked]
        self.replayed = sum(bool(inputs[key] or outputs.get(key)) for key in keys)
        self._hooks = contextlib.ExitStack()
        self._counts: dict[str, int] = {}
        # what a call was given in several places is one tensor there: an attention to itself asks if it is
        self._placed: dict[tuple[int, int], Tensor] = {}

    def __enter__(self) -> InputReplay:
        with contextlib.ExitStack() as stack:  # an interrupt on the way removes those that are there
            for path, module in self._hooked.items():
                before, after = self._hooks_of(path)
                stack.enter_context(nn.Module.register_forward_pre_hook(module, before, with_kwargs=True))
                stack.enter_context(nn.Module.register_forward_hook(module, after, with_kwargs=True))
            self._hooks = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def _hooks_of(self, path: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        running: list[int] = []  # open calls of this module: it may call itself

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            number = self._counts[path] = self._counts.get(path, -1) + 1
            running.append(number)
            plan = self._inputs.get((path, number))
            if not plan:
                return None
            self._placed.clear()
            placed = tuple([self._put(plan, thing, f"args[{i}]") for i, thing in enumerate(args)])
            return placed, {name: self._put(plan, thing, name) for name, thing in kwargs.items()}

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            plan = self._outputs.get((path, running.pop()))
            self._placed.clear()
            return self._put(plan, output, "") if plan else None

        return before, after

    def _put(self, plan: Mapping[str, Value], content: Any, slot: str) -> Any:
        """Return an argument or result with the planned tensors in it; the same object if none is planned for it."""
        if isinstance(content, Tensor):
            value = plan.get(slot)
            if value is None:
                return content
            key = value.number, id(content)
            if key not in self._placed:
                self._placed[key] = self._tensor(value, content)
            return self._placed[key]
        if isinstance(content, (list, tuple)):
            keys: Iterable[Any] = getattr(content, "_fields", range(len(content)))
            placed = [self._put(plan, item, _slot(slot, key)) for key, item in zip(keys, content)]
            if all(new is old for new, old in zip(placed, content)):
                return content
            return type(content)(*placed) if hasattr(content, "_fields") else type(content)(placed)
        if isinstance(content, dict):
            changed = {key: self._put(plan, item, _slot(slot, key)) for key, item in content.items()}
            if all(changed[key] is item for key, item in content.items()):
                return content
            changed_copy = copy.copy(content)
            for key, item in changed.items():
                changed_copy[key] = item
            return changed_copy
        if dataclasses.is_dataclass(content) and not isinstance(content, type):
            fields = {field.name: getattr(content, field.name, None) for field in dataclasses.fields(content)}
            changed = {name: self._put(plan, item, _slot(slot, name)) for name, item in fields.items()}
            if all(changed[name] is item for name, item in fields.items()):
                return content
            twin: Any = copy.copy(content)
            for name, item in changed.items():
                object.__setattr__(twin, name, item)
            return twin
        return content

    def _tensor(self, value: Value, like: Tensor) -> Tensor:
        if type(like) not in (Tensor, nn.Parameter) or tuple(like.shape) != value.shape:
            return like
        with untracked():  # hidden from tape and autograd; copied to memory of torch's own, which has versions
            tensor: Tensor = self._trace.tensor(value).to(device=like.device, dtype=like.dtype, copy=True)
            return like if self._keeps(tensor, like) else tensor


def _hookable(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules below a model by path, except modules that would run differently with a hook on them.

    ``nn.TransformerEncoder`` runs its layers fused only if neither they nor anything in them has a hook.
    """
    named = dict(named_modules_of(model))
    fused = [path for path, module in named.items() if not allows_mode_around(module)]
    return {
        path: module
        for path, module in named.items()
        if path
        and not (path in fused and isinstance(module, nn.TransformerEncoderLayer))
        and not any(path.startswith(f"{whole}." if whole else "") for whole in fused)
    }


def _slot(parent: str, key: Any) -> str:
    """Return the name of a place in a container, as :func:`fxdebug.data.values.leaves` names it."""
    if isinstance(key, str) and key.isidentifier():
        return f"{parent}.{key}" if parent else key
    return f"{parent}[{key!r}]"

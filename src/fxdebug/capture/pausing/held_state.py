"""The state that a paused run can change: what the model and its inputs hold, to put back where the run is quit.

Containers, attributes and hooks are compared with a snapshot. The content of a tensor is copied only before an
operation writes to it: one of the forward, or one of a line that is typed while it is paused.
"""

from __future__ import annotations

import contextlib
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.replay.containers import Holder, holders_of_one
from fxdebug.capture.replay.introspect import attributes_of, items_of, slot_of, slots_of
from fxdebug.capture.replay.stateful_objects import restorer
from fxdebug.capture.tape.op_traits import may_write
from fxdebug.capture.tensors.named_tensors import tensors_in
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.capture.torch_state.whose_code import is_library, is_of_python

MOST_OBJECTS = 50_000  # looked at; what lies further away is not put back

_CLOSED = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None), range, torch.dtype, torch.device, torch.Size))
_CONTAINERS = (dict, list, set, deque)


class HeldState:
    """The contents of a model and of the inputs of a run: containers, attributes, hooks, generators, arrays, tensors.

    Of the model, objects of the program's own classes are looked into; of the inputs, those of libraries as well, such
    as caches.
    """

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._holders: list[tuple[Holder, Any]] = []  # with the module whose attributes it holds
        self._kinds = {id(module): type(module) for module in modules_of(model)}
        self._restorers: list[Callable[[], bool]] = []
        self._tensors: list[_HeldTensor] = []
        self._of_address: dict[int, list[_HeldTensor]] = {}
        self._visited: set[int] = set()
        with untracked():
            self._walk(model, opens=lambda kind: not is_library(kind.__module__))
            self._walk(inputs, opens=lambda kind: not is_of_python(kind.__module__))

    # Looking ---------------------------------------------------------------------------------------

    def _walk(self, root: Any, opens: Callable[[type], bool]) -> None:
        pending = deque([root])
        while pending and len(self._visited) < MOST_OBJECTS:
            thing = pending.popleft()
            kind = type(thing)  # not isinstance: it believes the object's ``__class__``, which may be anything
            if kind in _ATOMS or id(thing) in self._visited or issubclass(kind, _CLOSED):
                continue
            self._visited.add(id(thing))
            with contextlib.suppress(Exception):  # an object that raises when it is read is left as it is
                pending.extend(self._entered(thing, kind, opens))

    def _entered(self, thing: Any, kind: type, opens: Callable[[type], bool]) -> Iterator[Any]:
        """Note how a thing is put back, and yield what it holds."""
        if issubclass(kind, Tensor):
            self._add_tensor(thing)
            return
        restore = restorer(thing)
        if restore is not None:
            self._restorers.append(restore)
            return
        is_module = issubclass(kind, nn.Module)
        is_container = issubclass(kind, _CONTAINERS)
        if is_container or is_module or opens(kind):
            self._holders += [(holder, thing if is_module else None) for holder in holders_of_one(thing)]
        if is_container or issubclass(kind, (tuple, frozenset)):
            yield from items_of(thing)
        if is_module:
            yield from self._inside_module(thing)
        elif opens(kind):
            yield from (attributes_of(thing) or {}).values()
            yield from (slot_of(thing, name) for name in slots_of(kind))  # type: ignore[arg-type]

    def _inside_module(self, module: nn.Module) -> Iterator[Any]:
        """Yield what a module holds; the containers of torch's, of its hooks and parameters, belong to it."""
        for name, content in module.__dict__.items():
            if name in _OF_TORCH and isinstance(content, (dict, set)) and id(content) not in self._visited:
                self._visited.add(id(content))
                self._holders += [(holder, module) for holder in holders_of_one(content)]
                yield from items_of(content)
            else:
                yield content

    def _add_tensor(self, tensor: Tensor) -> None:
        held = _HeldTensor(tensor)
        self._tensors.append(held)
        if held.address:
            self._of_address.setdefault(held.address, []).append(held)

    # While it runs ---------------------------------------------------------------------------------

    def before_op(self, function: Any, args: Any, kwargs: Mapping[str, Any] | None) -> None:
        """Copy the tensors that an operation may write to."""
        if not may_write(function, kwargs):
            return
        with internals.DisableTorchFunction():
            for tensor in tensors_in((*args, *(kwargs or {}).values()), depth=2):
                for held in self._of_address.get(_address(tensor), ()):
                    held.keep()

    def watching(self) -> TorchFunctionMode:
        """Return a mode that does the same for the torch functions that a typed line calls."""
        return _Watching(self)

    # Putting back ----------------------------------------------------------------------------------

    def restore(self) -> None:
        """Put everything back that has changed."""
        for holder, module in self._holders:
            if module is None or type(module) is self._kinds.get(id(module), type(module)):  # a lazy one has changed
                with contextlib.suppress(Exception):
                    holder.restore()
        for restore in self._restorers:
            with contextlib.suppress(Exception):
                restore()
        with untracked():
            for held in self._tensors:
                held.restore()


_OF_TORCH = frozenset(vars(nn.Module()))


class _HeldTensor:
    """A tensor: where its memory is, whether it requires a gradient, and its content once it is about to change."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.address = _address(tensor)
        self._alias: Tensor | None = None
        self._content: Tensor | None = None
        with contextlib.suppress(Exception):  # one without memory, such as an uninitialised parameter
            self._requires_grad = tensor.requires_grad
            self._place = _place(tensor)
            self._alias = tensor.detach()

    def keep(self) -> None:
        """Copy the content, the first time."""
        if self._content is None and self._alias is not None:
            with contextlib.suppress(Exception):
                self._content = self._alias.clone()

    def restore(self) -> None:
        """Put memory, content and flag back where they are other ones."""
        tensor, alias = self._tensor, self._alias
        if alias is None:
            return
        with contextlib.suppress(Exception):
            if _place(tensor) != self._place:  # tensor.data = …
                tensor.data = alias
        if self._content is not None:
            with contextlib.suppress(Exception), torch.inference_mode(alias.is_inference()), torch.no_grad():
                alias.copy_(self._content)
        with contextlib.suppress(Exception):
            if tensor.requires_grad != self._requires_grad:
                tensor.requires_grad_(self._requires_grad)


class _Watching(TorchFunctionMode):
    def __init__(self, state: HeldState) -> None:
        super().__init__()
        self._state = state

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._state.before_op(func, args, kwargs)
        return func(*args, **(kwargs or {}))


def _address(tensor: Tensor) -> int:
    """Return where the memory of a tensor begins; 0 where it has none of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except Exception:  # sparse, nested and wrapped tensors
        return 0


def _place(tensor: Tensor) -> tuple[object, ...]:
    return _address(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype

"""The state of torch that belongs to a thread, taken along into another thread.

Gradient mode, inference mode and autocast, function and dispatch modes, the default device, the hooks on saved tensors
and the device and streams in use. The rest (default dtype, random generators, deterministic algorithms) is shared by
all threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import context_now, in_context
from fxdebug.errors import UsageError


class CarriedState:
    """The state of the thread in which it is made; :meth:`put` puts it on in another, for a block.

    Raises ``UsageError`` inside a transform of ``torch.func``, which cannot be taken along.
    """

    def __init__(self) -> None:
        if internals.functorch_level() is not None:
            raise UsageError("a forward inside torch.vmap or another transform of torch.func cannot be paused")
        self._context = context_now()
        self._functions = [internals.get_function_stack_at(i) for i in range(internals.len_torch_function_stack())]
        self._dispatch = [internals.get_dispatch_stack_at(i) for i in range(internals.len_torch_dispatch_stack())]
        self._device = internals.default_device_context()
        self._saved_tensors = internals.top_saved_tensors_hooks()
        self._cache = torch.is_autocast_cache_enabled()
        self._multithreading = internals.is_multithreading_enabled()
        self._cuda: tuple[int, list[Any]] | None = None
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            streams = [torch.cuda.current_stream(device) for device in range(torch.cuda.device_count())]
            self._cuda = torch.cuda.current_device(), streams
        self.grad_after = self._context[0]  # gradient mode when the block ended: a program may set it for good

    @contextlib.contextmanager
    def put(self) -> Iterator[None]:
        """Give this thread the state, for a block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(in_context(self._context))
            torch.set_autocast_cache_enabled(self._cache)
            internals.set_multithreading_enabled(self._multithreading)
            if self._cuda is not None:
                for stream in self._cuda[1]:
                    torch.cuda.set_stream(stream)
                torch.cuda.set_device(self._cuda[0])
            if self._saved_tensors is not None:
                internals.push_saved_tensors_hooks(*self._saved_tensors)
                stack.callback(internals.pop_saved_tensors_hooks)
            internals.set_default_device_context(self._device)
            for mode in self._dispatch:
                internals.push_dispatch_mode(mode)
                stack.callback(internals.pop_dispatch_mode)
            for mode in self._functions:
                internals.push_on_torch_function_stack(mode)
                stack.callback(internals.pop_torch_function_stack)
            try:
                yield
            finally:
                self.grad_after = torch.is_grad_enabled()

"""The state that decides how operations run: gradients, inference mode, autocast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fxdebug.capture.tape import Context, context_now


@contextlib.contextmanager
def in_context(context: Context) -> Iterator[None]:
    """The grad, inference and autocast state a call began in."""
    gradients, inference, autocast = context
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(inference))
        for device, _ in context_now()[2] or ():
            stack.enter_context(torch.autocast(device, enabled=False))
        for device, dtype in autocast or ():
            stack.enter_context(torch.autocast(device, dtype=dtype))
        stack.enter_context(torch.set_grad_enabled(gradients))
        yield

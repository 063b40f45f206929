"""Find what keeps the graphs of earlier runs on a model: a sum of losses, or a state that is not detached."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.probe import members, named_tensors
from fxdebug.features.shared.tried_settings.subject import Subject
from fxdebug.operators.autograd_nodes import new_nodes


def kept_graphs(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Return the path and the attribute of what holds the graph of the first of two runs after the second.

    The model is run twice for that, and is afterwards as before.
    """
    if not (torch.is_grad_enabled() or subject.loss is not None):
        return ()
    found: list[tuple[str, str]] = []
    with contextlib.suppress(Exception), subject.unchanged() as restore:  # it is passed on by the first step
        restore()
        with torch.enable_grad(), subject.settings():
            before = set[Any]()
            for _, tensor in _held(subject):
                before.update(new_nodes(tensor.grad_fn, set(before)))
            args, kwargs = subject.inputs()
            subject.model(*args, **kwargs)
            first = set(before)
            for _, tensor in _held(subject):
                list(new_nodes(tensor.grad_fn, first))
            first -= before
            args, kwargs = subject.inputs()
            if first:
                subject.model(*args, **kwargs)
            for place, tensor in _held(subject) if first else ():
                if not first.isdisjoint(new_nodes(tensor.grad_fn, set())):
                    found.append(place)
    return tuple(dict.fromkeys(found))


def _held(subject: Subject) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Yield the tensors with a graph that a model's own attributes hold, buffers included, with their place."""
    for path, module in members.named_modules_of(subject.model):
        own = {**{name: one for name, one in vars(module).items() if not name.startswith("_")}, **module._buffers}
        for name, content in own.items():
            for _, tensor in named_tensors(content):
                if tensor.grad_fn is not None:
                    yield (path, name), tensor

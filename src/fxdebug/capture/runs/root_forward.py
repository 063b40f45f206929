"""Stand in front of one method of a model, its forward, for the length of a training loop."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fxdebug.capture.hooks.forward_wrapper import InFront, copies
from fxdebug.capture.hooks.patch import INHERITED, OwnAttribute
from fxdebug.capture.torch_state.internals import keep_dynamo_off
from fxdebug.capture.torch_state.uncounted import uncounted

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class RootForward(InFront):
    """Runs a method of a model inside ``around``. Copies and pickles of the model have what was there before."""

    def __init__(self, model: nn.Module, name: str, run: Callable[..., Any], around: Around) -> None:
        self._model, self._method, self._run, self._around = model, name, run, around
        self.original = model.__dict__.get(name, INHERITED)
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            if (value := getattr(run, attribute, None)) is not None:
                self.__dict__[attribute] = value
        self.__wrapped__ = run  # trainers give a model what its forward names

    @uncounted
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # within a larger region, which may not break
            return self._run(*args, **kwargs)
        return self._around(self._run, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo.get(id(self._model))
        if twin is None or self.original is not INHERITED:  # the function is copied without its model
            return copy.deepcopy(self._run, memo)
        return types.MethodType(getattr(type(self._model), self._method), twin)

    def __reduce__(self) -> Any:
        return getattr, (self._model, self._method)  # of the class: the attributes are not there yet when this is read


keep_dynamo_off(RootForward.__call__.__code__)  # alone it runs as written, and what it runs is compiled


class _Patch(OwnAttribute):
    """The patch that also keeps copies of the model, made meanwhile, free of it."""

    def __init__(self, own: dict[str, Any], name: str, content: RootForward) -> None:
        super().__init__("<module>.<method>", own, name, content)

    def put(self) -> None:
        """Set our content, unless it is there."""
        if not self.is_put:
            copies.begin(self)
        super().put()

    def restore(self) -> None:
        """Restore the original."""
        try:
            super().restore()
        finally:
            copies.end(self)


def root_forward(model: nn.Module, method: str, around: Around) -> OwnAttribute:
    """Return the patch that puts ``around`` in front of a model's method, or of the code it was compiled into.

    >>> front = root_forward(model := nn.ReLU(), "forward", lambda run, args, kwargs: run(*args, **kwargs) + 1)
    >>> front.put()
    >>> inside = model(torch.zeros(1))
    >>> front.restore()
    >>> inside, model(torch.zeros(1))
    (tensor([1.]), tensor([0.]))
    """
    name, run = method, getattr(model, method)
    if method == "forward" and model.__dict__.get("_compiled_call_impl") is not None:
        name, run = "_compiled_call_impl", model.__dict__["_compiled_call_impl"]
    return _Patch(model.__dict__, name, RootForward(model, name, run, around))

"""Stand in front of one method of a model, its forward, for the length of a training loop."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

from torch import nn

from fxdebug.capture.hooks.patch import OwnAttribute
from fxdebug.capture.torch_state.uncounted import uncounted

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class RootForward:
    """Runs a method of a model inside ``around``. Copies and pickles of the model get the method of their class."""

    def __init__(self, model: nn.Module, method: str, run: Callable[..., Any], around: Around) -> None:
        self._model, self._method, self._run, self._around = model, method, run, around

    @uncounted
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(self._run, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo.get(id(self._model))
        if twin is None:  # the function is copied without its model
            return copy.deepcopy(self._run, memo)
        return types.MethodType(getattr(type(self._model), self._method), twin)

    def __reduce__(self) -> Any:
        return getattr, (self._model, self._method)  # of the class: the attributes are not there yet when this is read


def root_forward(model: nn.Module, method: str, around: Around) -> OwnAttribute:
    """Return the patch that puts ``around`` in front of a model's method, or of the code it was compiled into."""
    name, run = method, getattr(model, method)
    if method == "forward" and model.__dict__.get("_compiled_call_impl") is not None:
        name, run = "_compiled_call_impl", model.__dict__["_compiled_call_impl"]
    return OwnAttribute("<module>.<method>", model.__dict__, name, RootForward(model, method, run, around))

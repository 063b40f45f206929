"""Run a model with some of its modules computed by those of another model, such as those that were not quantised."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.torch_state.module_members import named_modules_of, parameters_of


class OriginalsBack:
    """A block in which modules of ``model`` return what other modules make of the same arguments.

    ``originals`` has these modules by the path of the one that they stand in for. Floating tensors are cast to the
    dtype of the other module, and results to the dtype that the own module returns. ``replaced`` are the paths that
    were called; ``failed`` says why a module could not stand in, which then returns its own result.
    """

    def __init__(self, model: nn.Module, originals: Mapping[str, nn.Module]) -> None:
        modules = dict(named_modules_of(model, every_name=True))
        self._modules = {path: modules[path] for path in originals if path in modules}
        self._originals = originals
        self._hooks = contextlib.ExitStack()
        self.replaced: set[str] = set()
        self.failed: dict[str, str] = {}

    def __enter__(self) -> OriginalsBack:
        with contextlib.ExitStack() as stack:  # an interrupt on the way removes those that are there
            for path, module in self._modules.items():
                hook = self._hook(path, self._originals[path])
                stack.enter_context(nn.Module.register_forward_hook(module, hook, with_kwargs=True))
            self._hooks = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def _hook(self, path: str, original: nn.Module) -> Callable[..., Any]:
        dtype = next((p.dtype for p in parameters_of(original) if p.is_floating_point()), None)

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            self.replaced.add(path)
            try:
                given = [cast(x, dtype) for x in args]
                theirs = original(*given, **{name: cast(x, dtype) for name, x in kwargs.items()})
                return _like(theirs, output)
            except Exception as error:
                self.failed[path] = f"{type(error).__name__}: {error}".partition("\n")[0]
                return None

        return after


def cast(thing: Any, dtype: torch.dtype | None) -> Any:
    """Return floating tensors in another dtype, also in lists, tuples and dicts; anything else is unchanged.

    >>> cast((torch.ones(1), 3), torch.float64)
    (tensor([1.], dtype=torch.float64), 3)
    """
    if isinstance(thing, Tensor):
        return thing.to(dtype) if dtype is not None and thing.is_floating_point() and thing.dtype != dtype else thing
    if isinstance(thing, (list, tuple)) and not hasattr(thing, "_fields"):
        return type(thing)([cast(x, dtype) for x in thing])
    if type(thing) is dict:
        return {key: cast(x, dtype) for key, x in thing.items()}
    return thing


def _like(theirs: Any, ours: Any) -> Any:
    """Return a result with the dtypes and devices of another one. Raises ``TypeError`` where it has another form."""
    if isinstance(ours, Tensor):
        if not isinstance(theirs, Tensor) or theirs.shape != ours.shape:
            raise TypeError("it returns another form")
        if ours.is_quantized:
            raise TypeError("it returns a quantised tensor")
        return theirs.to(device=ours.device, dtype=ours.dtype)
    if isinstance(ours, (list, tuple)) and type(theirs) is type(ours) and len(theirs) == len(ours):
        parts = [_like(x, y) for x, y in zip(theirs, ours)]
        return type(ours)(*parts) if hasattr(ours, "_fields") else type(ours)(parts)
    if type(theirs) is not type(ours) or isinstance(ours, (list, tuple)):
        raise TypeError("it returns another form")
    return theirs

"""Run models whose fused operations are written out: attentions, norms, activations, recurrent layers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Set
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.hooks.patch import OwnAttribute, Patch, Setting, SharedPatch
from fxdebug.repair.decompositions import activations, attention, normalization, recurrent

_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: attention.scaled_dot_product_attention,
    F.multi_head_attention_forward: attention.multi_head_attention_forward,
    F.layer_norm: normalization.layer_norm,
    F.group_norm: normalization.group_norm,
    F.batch_norm: normalization.batch_norm,
    F.gelu: activations.gelu,
    F.silu: activations.silu,
    F.glu: activations.glu,
    torch.lstm: recurrent.lstm,
    torch.gru: recurrent.gru,
    torch.lstm_cell: recurrent.lstm_cell,
    torch.gru_cell: recurrent.gru_cell,
}
if hasattr(F, "rms_norm"):  # torch 2.4
    _WRITTEN_OUT[F.rms_norm] = normalization.rms_norm

_IN_ANOTHER_FORM: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: functools.partial(attention.scaled_dot_product_attention, scale_first=True),
    F.multi_head_attention_forward: functools.partial(attention.multi_head_attention_forward, scale_first=True),
    F.batch_norm: functools.partial(normalization.batch_norm, folded=True),
}

FUSED = frozenset(function.__name__ for function in _WRITTEN_OUT)
"""The names of the operations that :func:`decomposed` writes out."""
IN_TWO_FORMS = frozenset(function.__name__ for function in _IN_ANOTHER_FORM)
"""Those that people write in two ways: scores or queries are scaled, a norm is one factor and one summand."""
_WIDE = (torch.float32, torch.float64)  # in others, kernels compute wider than the operations that they are made of


class _Decomposing(TorchFunctionMode):
    """Runs an operation as those that it is made of, which modes below this one see."""

    def __init__(self, operations: Set[str], in_another_form: bool) -> None:
        super().__init__()
        forms = {**_WRITTEN_OUT, **(_IN_ANOTHER_FORM if in_another_form else {})}
        self._functions = {function: form for function, form in forms.items() if function.__name__ in operations}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        write_out = self._functions.get(func)
        if write_out is not None and args and isinstance(args[0], Tensor) and args[0].dtype in _WIDE:
            result = write_out(*args, **(kwargs or {}))
            if result is not None:
                return result
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def decomposed(*models: nn.Module, operations: Set[str] = FUSED, in_another_form: bool = False) -> Iterator[None]:
    """Have models run fused operations in float32 and float64 as the operations that these are made of.

    What they return differs by rounding only. A recording of such a run has the single operations. ``operations`` are
    the names of those to write out, of :data:`FUSED`; kernels for whole modules are off. With ``in_another_form``,
    those of :data:`IN_TWO_FORMS` are written in their second one.

    >>> from fxdebug.api.run_model import fx_debug
    >>> model = nn.Sequential(nn.SiLU())
    >>> with decomposed(model):
    ...     trace = fx_debug(model, torch.ones(2))
    >>> [node for node in trace.graph if node.startswith("0#0/")]
    ['0#0/input_1', '0#0/sigmoid', '0#0/mul', '0#0/output']
    """
    places: list[Patch] = [
        Setting(
            "torch.backends.mha.set_fastpath_enabled",
            torch.backends.mha.get_fastpath_enabled,
            torch.backends.mha.set_fastpath_enabled,
            lambda _: False,
        )
    ]
    for model in dict.fromkeys(models):
        places.append(
            OwnAttribute(
                "<model>.forward",
                vars(model),
                "forward",
                _with_mode(model.forward, _Decomposing(operations, in_another_form)),
            )
        )
    with SharedPatch(*places).block():
        yield


def _with_mode(forward: Callable[..., Any], mode: _Decomposing) -> Callable[..., Any]:
    """Return a forward that runs its fused operations written out."""

    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return forward(*args, **kwargs)

    return run

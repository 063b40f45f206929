"""The tensors of a run that can be had: those that it kept, and the weights of its model."""

from __future__ import annotations

from torch import Tensor, nn

from fxdebug.capture.torch_state.module_members import named_buffers_of, named_parameters_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import LoadError, UsageError


def weights_of(model: nn.Module | None) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model by their names, as they are, without a gradient."""
    named = () if model is None else (*named_parameters_of(model), *named_buffers_of(model))
    return {name: tensor.detach() for name, tensor in named}


class TensorsAtHand:
    """Read the tensors of one side of a comparison; ``side`` is its letter in messages."""

    def __init__(self, trace: TraceData, side: str) -> None:
        self._trace, self._side = trace, side
        model = getattr(trace.graph_source, "model", None)
        self._model = model if isinstance(model, nn.Module) else None
        self._weights: dict[str, Tensor] | None = None
        self._read: dict[int, Tensor] = {}

    def is_kept(self, value: Value) -> bool:
        """Did the run keep the data of a value?"""
        return value.saved is not None and self._trace.data is not None

    def given(self, value: Value) -> Tensor:
        """Return a tensor of the run."""
        if value.number not in self._read:
            self._read[value.number] = self._trace.tensor(value)
        return self._read[value.number]

    def weight(self, value: Value) -> Tensor:
        """Return a weight by its name in the model. Raises ``UsageError`` if its data is not available."""
        if self.is_kept(value):
            return self.given(value)
        if self._weights is None and self._model is not None:
            self._weights = weights_of(self._model)
        found = None if self._weights is None else self._weights.get(str(value.name))
        given = getattr(self._trace.data, "weight", None)  # those that were given to compare
        if found is None and given is not None:
            found = given(str(value.name))
        if found is None:
            raise UsageError(
                f"no script can be written: the weight {value.name} of {self._side} is not at hand: compare runs of "
                f"this process, or give the weights: compare(a, b, weights_{self._side}='model.safetensors')"
            )
        if tuple(found.shape) != value.shape or str(found.dtype)[6:] != value.dtype:
            raise LoadError(f"the weight {value.name} of {self._side} is not what ran, {value.label}: run it again")
        return found.cpu()

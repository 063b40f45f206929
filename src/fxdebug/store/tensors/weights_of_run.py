"""The weights of the model beside the tensors of its run: written once, or their digests where they are large."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from torch import Tensor

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.store.tensors.encode import Pieces, digest_of, is_plain
from fxdebug.store.tensors.shards import BATCH_BYTES, ShardWriter

MOST_BYTES = 2 << 30  # of weights that are written


def weights_to_keep(trace: TraceData, weights: Mapping[str, Tensor]) -> list[tuple[Value, Tensor]]:
    """Return the weights that a run read and did not change; ``weights`` are those of the model, by name."""
    kept: dict[str, Tensor] = {}
    for parameter in trace.parameters:
        tensor = next((weights[name] for name in parameter.names if name in weights), None)
        if tensor is None or parameter.changed or parameter.sharding is not None:
            continue
        if is_plain(tensor) and not is_freed(tensor):
            kept |= dict.fromkeys(parameter.names, tensor)
    return [(value, kept[str(value.name)]) for value in trace.values if _is_weight(value, kept)]


def _is_weight(value: Value, kept: Mapping[str, Tensor]) -> bool:
    tensor = None if value.name is None else kept.get(value.name)
    if tensor is None or value.saved is not None:
        return False
    return value.shape == tuple(tensor.shape) and value.dtype == str(tensor.dtype)[6:]


def bytes_of_weights(pairs: list[tuple[Value, Tensor]]) -> int:
    """Return how much memory the weights take, each once."""
    return sum({id(tensor): tensor.nbytes for _, tensor in pairs}.values())


def write_weights(pairs: list[tuple[Value, Tensor]], shards: ShardWriter) -> None:
    """Write weights beside the tensors of the run."""
    for value, tensor in pairs:
        if value.number not in shards.locations:
            with contextlib.suppress(ValueError, RuntimeError):  # as for the values of the run
                shards.add(value, tensor.detach())


def digests_of_weights(pairs: list[tuple[Value, Tensor]]) -> Iterator[tuple[Value, str]]:
    """Yield the digest of each weight, by which equal ones are recognised without their data."""
    for value, tensor in pairs:
        with contextlib.suppress(ValueError, RuntimeError):
            yield value, digest_of(value, {"": Pieces(tensor, BATCH_BYTES)})

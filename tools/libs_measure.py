"""Run one model for ``make libs``: plainly, recorded, and under the judge of ``make zoo``."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from fxdebug import fx_debug
from libs_measured import Measured
from libs_models import Build
from support.other_inputs import BATCH, Others
from support.same import bits
from support.trust import Trust, called, trust

__all__ = ["measured"]

DOES_MORE = "and a graph does not"  # how the reasons end that the body does more than its graph
FUSING = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)  # hooks change what they compute


def measured(name: str, build: Build) -> Measured:
    """Run a model several times: plainly, recorded, and under the judge."""
    found = Measured(name)
    began = time.perf_counter()
    try:
        _seeded(build)
    except Exception as error:
        found.stopped = _told(error)
        return found
    counted = trust(name, lambda: _seeded(build), other_inputs=True, own=True)
    assert counted is not None
    _count(found, counted)
    if counted.stopped is None and counted.failed is None:
        try:
            _hold_tensors(found, build)
        except Exception as error:
            found.failed = f"when its tensors were compared: {_told(error)}"
    found.seconds = time.perf_counter() - began
    return found


def _seeded(build: Build) -> Any:
    torch.manual_seed(0)
    with ZeroedMemory():
        model, inputs = build()
    return model.eval(), inputs


class ZeroedMemory(TorchFunctionMode):
    """Fills memory that a library leaves as it was: two models that it makes are then the same."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made.zero_() if func in (torch.empty, torch.empty_like, torch.Tensor.new_empty) else made


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0][:300]


def _count(found: Measured, counted: Trust) -> None:
    found.stopped, found.failed, found.output = counted.stopped, counted.failed, counted.output
    found.calls, found.verified = counted.calls, counted.verified
    found.ops, found.ops_verified = counted.ops, counted.ops_verified
    found.reasons, found.reasons_ops = dict(counted.reasons), dict(counted.reason_ops)
    found.audited = counted.audited
    found.wrong = [*counted.wrong, *(f"not audited: {text}" for text in counted.not_audited)]
    found.wrong += [f"without graph or reason: {text}" for text in counted.unexplained]
    if counted.left:
        found.failed = f"{counted.left} placeholders are alive after the run"
    if counted.own is not None:
        own = counted.own
        found.own = own.right + len(own.wrong) + sum(_refusals(own).values())
        refused = {reason: count for reason, count in _refusals(own).items() if not reason.endswith(DOES_MORE)}
        found.own_refused = [reason for reason, count in refused.items() for _ in range(count)]
        found.own_does_more = sum(_refusals(own).values()) - len(found.own_refused)
        found.wrong += [f"{own.change}: {text}" for text in own.wrong]
    for other in counted.others:
        found.wrong += [f"{other.change}: {text}" for text in other.wrong]
        if other.change == BATCH:
            found.batch_not_asked = other.stopped
            found.batch_refused = dict(_refusals(other))
            found.batch_accepted = other.right + len(other.wrong)
            found.batch = found.batch_accepted + sum(found.batch_refused.values())


def _refusals(other: Others) -> Counter[str]:
    return other.objects + other.refused + other.needless + Counter(other.failed)


# Recorded tensors ----------------------------------------------------------------------------------


def _hold_tensors(found: Measured, build: Build) -> None:
    """Hold each tensor that a call of the trace returned against the one that the plain model returned there."""
    model, inputs = _seeded(build)
    with _outputs(model) as expected, torch.no_grad():
        torch.manual_seed(1)
        called(model, inputs)
    model, inputs = _seeded(build)
    with tempfile.TemporaryDirectory(prefix="fxdebug-libs-") as folder:
        with torch.no_grad():
            torch.manual_seed(1)
            trace = fx_debug(model, inputs, save=f"{folder}/run", values="tensors", graph=False)
        for call in trace.calls:
            wanted = expected.pop(call.id, None)
            given = [] if call.outputs is None else [trace.tensor(value) for value in call.outputs]
            if wanted is None or len(given) != len(wanted):
                continue  # a module that hooks would disturb, or a result whose tensors are found in other places
            for ours, theirs in zip(given, wanted):
                found.tensors += 1
                if not isinstance(ours, torch.Tensor) or _digest(ours) != theirs:
                    found.tensors_wrong.append(call.id)


def _digest(tensor: torch.Tensor) -> bytes:
    """A digest of the bits of a tensor: all that a large model computes would not fit into its memory twice."""
    return hashlib.blake2b(bits(tensor)).digest()


@contextlib.contextmanager
def _outputs(model: nn.Module) -> Iterator[dict[str, list[bytes]]]:
    """Digests of what each call of each module returns, by the id that a trace gives to the call."""
    outputs: dict[str, list[bytes]] = {}
    counts: Counter[str] = Counter()
    fusing = [path for path, module in model.named_modules() if isinstance(module, FUSING)]
    handles = []
    for path, module in model.named_modules():
        if any(path == part or path.startswith(f"{part}.") for part in fusing):
            continue
        if isinstance(module, torch.jit.ScriptModule):
            continue

        def note(module: nn.Module, args: Any, output: Any, path: str = path) -> None:
            number, counts[path] = counts[path], counts[path] + 1
            tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
            outputs[f"{path}#{number}"] = [_digest(tensor) for tensor in tensors]

        handles.append(module.register_forward_hook(note))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()

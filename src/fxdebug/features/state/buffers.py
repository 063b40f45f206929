"""Buffers and parameters whose numbers their module cannot have made: nothing was written to them."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, special_tensors, state_restored, untracked
from fxdebug.data.findings import ADVICE, ERROR, Finding
from fxdebug.features.state.never_filled import are_counted, never_filled, never_written
from fxdebug.features.state.zero_tables import zero_table
from fxdebug.operators.dtypes import LARGEST_INTEGER

HUGE = 1e20  # in float32; masks have one such number, and no module a table of them
ALIKE = 0.05  # relative, of sections in bfloat16
SAME = 1e-3  # relative: a buffer may be cast to bfloat16 after it was made
TURNS = ("freqs_cis", "freqs_complex", "cos_cached", "cos_cache", "cos")  # tables of rotary positions
CAUSE = (
    "It is in no checkpoint: a model built on the meta device and filled with to_empty() has to make it again. "
    "Call the code of its __init__, or build the model on a device with data."
)
AGAIN = "Load it again, or make it as its module's __init__ does."
WIDE = "Keep positions as integers, or in float32: half() and to(dtype) cast every buffer of floating point."
FILL = "torch.empty() and to_empty() fill nothing: call an initialisation (torch.nn.init), or load it."


def find_buffers(model: nn.Module) -> Iterator[Finding]:
    """Yield the buffers that are not as their modules make them, and the parameters that hold what memory held."""
    counted = are_counted(model)
    for path, module in members.named_modules_of(model):
        if isinstance(module, torch.jit.ScriptModule):
            continue  # its buffers were loaded with it
        for name, parameter in module._parameters.items():
            if parameter is None or not _has_numbers(parameter):
                continue
            what = _of_memory(parameter) or never_filled(module, name, parameter)
            if what:
                yield _finding(path, module, name, f"the parameter {members.join(path, name)} {what}", FILL)
            elif counted and (what := never_written(module, name, parameter)):
                left = _finding(path, module, name, f"the parameter {members.join(path, name)} {what}", FILL)
                yield replace(left, severity=ADVICE)
        odd: dict[str, str] = {}
        for name, buffer in module._buffers.items():
            if buffer is not None and _has_numbers(buffer, or_complex=True):
                what = _odd(name, torch.view_as_real(buffer.resolve_conj()) if buffer.is_complex() else buffer)
                if what:
                    odd[name] = what
        loose = {
            name: buffer
            for name, buffer in module._buffers.items()
            if buffer is not None
            and name not in odd
            and name in module._non_persistent_buffers_set
            and _has_numbers(buffer)
        }
        odd |= {name: what for name, buffer in loose.items() if (what := zero_table(module, name, buffer))}
        odd |= _unlike_its_start(module, getattr(model, "config", None), loose)
        for name, what in odd.items():
            advice = CAUSE if name in module._non_persistent_buffers_set else AGAIN
            advice = WIDE if "every integer" in what else advice
            yield _finding(path, module, name, f"the buffer {members.join(path, name)} {what}", advice)


def _finding(path: str, module: nn.Module, name: str, what: str, advice: str) -> Finding:
    return Finding(
        rule="buffer",
        severity=ERROR,
        path=path,
        call=f"{path}#0",
        op=type(module).__name__,
        what=what,
        advice=advice,
    )


def _has_numbers(buffer: Tensor, or_complex: bool = False) -> bool:
    return (
        (buffer.is_floating_point() or (or_complex and buffer.is_complex()))
        and not buffer.is_meta
        and buffer.numel() > 0
        and buffer.layout is torch.strided
        and not buffer.is_quantized
        and not special_tensors.is_uninitialised(buffer)
        and type(buffer) in (Tensor, nn.Parameter)
    )


def _odd(name: str, buffer: Tensor) -> str:
    """Return what no module writes into a buffer, or nothing."""
    numbers = buffer.detach().flatten()
    if bool(numbers.isnan().any()):
        return f"has {int(numbers.isnan().sum())} NaN of {numbers.numel()}"
    what = _of_memory(buffer)
    if not what and name in TURNS and numbers.numel() > 1 and not bool(numbers.any()):
        return "is zero: what every position is multiplied by"
    what = what or _rounded_positions(buffer)
    if what or not name.endswith("inv_freq") or numbers.numel() < 2:
        return what
    return _odd_frequencies(numbers.double())


def _rounded_positions(buffer: Tensor) -> str:
    """Return that a narrow dtype rounds numbers that count on by one, as positions do."""
    most = LARGEST_INTEGER.get(str(buffer.dtype)[6:], 0)
    numbers = buffer.detach().flatten()
    if not most or buffer.ndim > 2 or len(numbers) <= most or max(buffer.shape) != len(numbers):
        return ""
    counted = torch.arange(len(numbers), device=buffer.device) + int(numbers[0].nan_to_num(0.0, 0.0, 0.0))
    if not torch.equal(numbers, counted.to(buffer.dtype)):
        return ""
    return (
        f"counts from {counted[0]} to {counted[-1]} in {str(buffer.dtype)[6:]}, which has every integer only up to "
        f"{most}: {len(numbers.unique())} of {len(numbers)} positions are left apart"
    )


def _of_memory(tensor: Tensor) -> str:
    """Return what no initialisation draws and no training makes, as memory has it that nothing was written to."""
    numbers = tensor.detach().flatten()
    sizes = numbers.abs().double()
    smallest = torch.finfo(tensor.dtype).tiny
    some = sizes[sizes > 0]
    if some.numel() and bool((some < smallest).all()):
        return f"is at most {float(some.max()):.2g}, below the smallest normal number of its dtype ({smallest:.2g})"
    if bool((sizes > HUGE).any()) and len(numbers.unique()) > 2:  # a mask has two numbers
        return f"has numbers up to {float(sizes.max()):.2g}"
    return ""


def _odd_frequencies(numbers: Tensor) -> str:
    """Frequencies of rotary positions fall from the first on, in each of their sections."""
    if not bool(numbers.any()):
        return "is zero: every position is turned alike"
    if bool((numbers < 0).any()):
        return f"has {int((numbers < 0).sum())} frequencies of {numbers.numel()} below 0"
    rises = (numbers[1:] > numbers[:-1] * (1 + SAME)).nonzero().flatten() + 1
    bounds = [0, *rises.tolist(), len(numbers)]
    sections = [numbers[start:end] for start, end in pairwise(bounds)]
    # a table of two dimensions has a section for each, alike up to a factor
    alike = [
        1 < len(one) == len(sections[0]) and torch.allclose(one / one[0], sections[0] / sections[0][0], rtol=ALIKE)
        for one in sections
    ]
    if not all(alike):
        return f"has frequencies that rise {len(rises)} times: they are to fall from the first to the last"
    return ""


def _unlike_its_start(module: nn.Module, config: Any, buffers: dict[str, Tensor]) -> dict[str, str]:
    """Compare buffers with those of a module that is made anew, where every argument of its class is known."""
    arguments = _arguments(module, config) if buffers else None
    if arguments is None:
        return {}
    try:
        with state_restored(), untracked(), torch.no_grad(), torch.device("cpu"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one, two = (dict(type(module)(**copy.deepcopy(arguments))._buffers) for _ in range(2))
    except Exception:  # whatever its constructor wants
        return {}
    found = {}
    for name, buffer in buffers.items():
        made, again = one.get(name), two.get(name)
        if made is None or again is None or made.shape != buffer.shape or not made.is_floating_point():
            continue
        if not torch.equal(made, again):  # drawn at random
            continue
        ours, theirs = buffer.detach().double().cpu(), made.double()
        largest = float(theirs[theirs.isfinite()].abs().max()) if bool(theirs.isfinite().any()) else 0.0
        step = torch.finfo(buffer.dtype).eps
        if not bool(ours.any()) and bool(theirs.any()):
            found[name] = f"is zero; what its __init__ makes goes up to {largest:.3g}"
        elif not torch.allclose(ours, theirs, rtol=max(SAME, 4 * step), atol=max(SAME, 4 * step) * largest):
            apart = float((ours - theirs).abs().nan_to_num().max())
            found[name] = f"differs by up to {apart:.3g} from what its __init__ makes (up to {largest:.3g})"
    return found


def _arguments(module: nn.Module, config: Any) -> dict[str, Any] | None:
    """Return the arguments that the module was made with, ``None`` where one of them is not known."""
    held = vars(module)
    if any("dynamic" in str(word) or "longrope" in str(word) for word in (held.get("rope_type"),)):
        return None  # the forward makes its frequencies anew
    if members.parameters_of(module):
        return None  # more than a table
    try:
        expected = list(inspect.signature(type(module).__init__).parameters.values())[1:]
    except (TypeError, ValueError):
        return None
    found: dict[str, Any] = {}
    for one in expected:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.name in held:
            found[one.name] = held[one.name]
        elif one.name == "config" and config is not None:
            found[one.name] = config
        elif one.name not in ("device", "dtype"):
            return None
    return found

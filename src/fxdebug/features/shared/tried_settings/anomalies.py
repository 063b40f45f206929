"""The knob that runs without autograd's anomaly mode, and whether a forward switches that on itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from fxdebug.capture.probe import patch
from fxdebug.features.shared.tried_settings.knobs import Try, knob
from fxdebug.features.shared.tried_settings.process_knobs import put
from fxdebug.features.shared.tried_settings.subject import Subject


@knob("anomaly mode")
def anomaly_mode(subject: Subject) -> Iterator[Try]:
    """Run without autograd's anomaly mode."""
    if finds_anomalies(subject):
        code = "torch.autograd.set_detect_anomaly(False), and no detect_anomaly() in the code"
        yield Try("no anomaly mode", code, lambda subject: subject.within(_without_anomaly_mode))


def finds_anomalies(subject: Subject) -> bool:
    """Tell whether the anomaly mode is on while a graph is recorded: before a forward, or in it, which is run once."""
    if torch.is_anomaly_enabled() or not (torch.is_grad_enabled() or subject.loss is not None):
        return torch.is_anomaly_enabled() and (torch.is_grad_enabled() or subject.loss is not None)
    seen: list[bool] = []

    def look(tensor: Tensor) -> Tensor:
        if not seen and torch.is_anomaly_enabled():
            seen.append(True)
        return tensor

    with contextlib.suppress(Exception), subject.unchanged() as restore:  # it is passed on by the first step
        restore()
        args, kwargs = subject.inputs()
        with torch.enable_grad(), subject.settings(), saved_tensors_hooks(look, lambda tensor: tensor):
            subject.model(*args, **kwargs)
    return bool(seen)


@contextlib.contextmanager
def _without_anomaly_mode() -> Iterator[None]:
    """Switch the mode off, and let nothing in the block switch it on."""
    switch = patch.Attribute("torch.set_anomaly_enabled", torch, "set_anomaly_enabled", lambda _: lambda *_: None)
    with torch.autograd.set_detect_anomaly(False), put(switch):  # type: ignore[no-untyped-call]
        yield

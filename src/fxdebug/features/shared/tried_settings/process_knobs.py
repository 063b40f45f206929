"""Knobs that set something of the process or around a run: threads, autocast, modes, subnormal numbers, TF32."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fxdebug.capture.probe import members, patch
from fxdebug.features.shared.tried_settings.knobs import Try, knob
from fxdebug.features.shared.tried_settings.subject import NotHere, Subject

_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


@contextlib.contextmanager
def put(patch: patch.Patch) -> Iterator[None]:
    """patch.Patch for the block."""
    try:
        patch.put()
        yield
    finally:
        patch.restore()


def device_type(subject: Subject) -> str:
    """Return the type of the device that a subject runs on."""
    kind: str = members.device_of(subject.model, (subject.args, dict(subject.kwargs))).type
    return kind


def on_gpu(prepare: Callable[[Subject], Subject]) -> Callable[[Subject], Subject]:
    """Return what sets a knob of CUDA, and refuses it where the model is on another device."""

    def checked(subject: Subject) -> Subject:
        if (kind := device_type(subject)) != "cuda":
            raise NotHere(f"it is a setting of CUDA, and the model is on the device {kind}")
        return prepare(subject)

    return checked


def cores() -> int:
    """Return the processor cores that this process may use: by its affinity and by the quota of its group."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(usable, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such group, or no quota
        return usable


@knob("threads")
def threads(subject: Subject) -> Iterator[Try]:
    """Compute with one thread, or with as many as this process may use cores."""

    def with_threads(count: int) -> contextlib.AbstractContextManager[None]:
        return put(
            patch.Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads, lambda _: count)
        )

    if device_type(subject) == "cpu":
        for count in sorted({1, cores()} - {torch.get_num_threads()}, reverse=True):
            yield Try(
                f"{count} thread" + "s" * (count > 1),
                f"torch.set_num_threads({count})",
                lambda subject, count=count: subject.within(partial(with_threads, count)),  # type: ignore[misc]
                threads=count,
            )


def flushes_subnormal() -> bool:
    """Are subnormal numbers flushed to zero in this thread?"""
    return not bool(torch.tensor([1e-39]).mul(1.0).ne(0).any())


@knob("subnormal numbers")
def subnormal(subject: Subject) -> Iterator[Try]:
    """Take numbers below 1.2e-38 for zero."""

    def prepare(subject: Subject) -> Subject:
        def flushed() -> contextlib.AbstractContextManager[None]:
            return put(
                patch.Setting("torch.set_flush_denormal", flushes_subnormal, torch.set_flush_denormal, lambda _: True)
            )

        return subject.within(flushed)

    if device_type(subject) == "cpu" and not flushes_subnormal():
        yield Try("subnormal numbers flushed", "torch.set_flush_denormal(True)", prepare)


@knob("autocast")
def autocast(subject: Subject) -> Iterator[Try]:
    """Compute products in bfloat16, with the weights as they are."""
    kind = device_type(subject)

    def prepare(subject: Subject) -> Subject:
        if kind not in ("cpu", "cuda"):
            raise NotHere(f"there is no autocast on the device {kind}")
        return subject.within(lambda: torch.autocast(kind, torch.bfloat16))

    if any(p.dtype is torch.float32 for p in members.parameters_of(subject.model)) and not torch.is_autocast_enabled(
        kind
    ):
        yield Try("autocast bfloat16", f'with torch.autocast("{kind}", torch.bfloat16): …', prepare)


@knob("inference mode")
def inference(subject: Subject) -> Iterator[Try]:
    """Record no graph for the backward."""
    if subject.loss is None and not torch.is_inference_mode_enabled():
        yield Try(
            "inference mode",
            "with torch.inference_mode(): …",
            lambda subject: subject.within(torch.inference_mode),
        )


@knob("TF32")
def tf32(subject: Subject) -> Iterator[Try]:
    """Multiply float32 with 10 bits of mantissa on a GPU."""

    def prepare(subject: Subject) -> Subject:
        def faster() -> contextlib.AbstractContextManager[None]:
            return put(
                patch.Setting(
                    "torch.set_float32_matmul_precision",
                    torch.get_float32_matmul_precision,
                    torch.set_float32_matmul_precision,
                    lambda _: "high",
                )
            )

        return subject.within(faster)

    has_floats = any(p.dtype is torch.float32 for p in members.parameters_of(subject.model))
    if has_floats and torch.get_float32_matmul_precision() == "highest":
        yield Try("TF32", 'torch.set_float32_matmul_precision("high")', on_gpu(prepare))


@knob("cuDNN benchmark")
def cudnn(subject: Subject) -> Iterator[Try]:
    """Let cuDNN try its algorithms for each size."""
    flags: Any = torch.backends.cudnn

    def prepare(subject: Subject) -> Subject:
        return subject.within(lambda: flags.flags(enabled=True, benchmark=True, deterministic=False))

    convolves = any(isinstance(module, _CONVOLUTIONS) for module in members.modules_of(subject.model))
    if convolves and not flags.benchmark:
        yield Try("cuDNN benchmark", "torch.backends.cudnn.benchmark = True", on_gpu(prepare))

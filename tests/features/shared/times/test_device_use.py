"""Samples of a GPU's utilisation: row P3 of the analyses, without a GPU."""

from __future__ import annotations

import threading

import pytest
import torch

from fxdebug.features.shared.times import device_use
from fxdebug.features.shared.times.device_use import DeviceUse


def test_p3_the_samples_are_what_was_read_and_their_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_use, "INTERVAL", 0.0)
    monkeypatch.setattr(device_use, "WINDOW", 0.0)
    left = [10.0, 50.0, 90.0]
    taken = threading.Event()

    def read() -> float:
        if len(left) == 1:
            taken.set()
        return left.pop(0)

    with DeviceUse(torch.device("cuda"), read) as use:
        assert taken.wait(100)
    assert use.samples == [10.0, 50.0, 90.0]
    assert "fxdebug-device-use" not in [thread.name for thread in threading.enumerate()]


def test_p3_without_a_cuda_device_there_are_no_samples_and_no_thread() -> None:
    with DeviceUse(torch.device("cpu")) as use:
        assert "fxdebug-device-use" not in [thread.name for thread in threading.enumerate()]
    assert (use.samples, use.missing) == ([], "no CUDA device")


@pytest.mark.parametrize(
    "error, told",
    [(ModuleNotFoundError("pynvml"), "pip install 'fxdebug[gpu]'"), (RuntimeError("no driver"), "NVML: no driver")],
)
def test_p3_the_reason_is_kept_where_nvml_cannot_be_asked(error: Exception, told: str) -> None:
    def read() -> float:
        raise error

    with DeviceUse(torch.device("cuda"), read) as use:  # the first sample is taken at once
        pass
    assert use.samples == [] and told in use.missing


def test_p3_samples_of_a_block_shorter_than_nvml_averages_over_are_none_and_no_zero() -> None:
    with DeviceUse(torch.device("cuda"), lambda: 0.0) as use:
        pass
    assert use.samples == [] and use.missing.endswith("NVML averages over up to a second: more repeats tell")

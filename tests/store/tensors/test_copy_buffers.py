"""Memory for copies is used again, and never while a copy is in use."""

from __future__ import annotations

import torch

from fxdebug.store.tensors.copy_buffers import CopyBuffers


def test_a_copy_is_not_used_again_before_it_is_given_back() -> None:
    buffers = CopyBuffers()
    first, second = buffers.copy(torch.zeros(1 << 15)), buffers.copy(torch.ones(1 << 15))
    address = first.data_ptr()
    assert address != second.data_ptr()
    buffers.give_back(first)
    third = buffers.copy(torch.full((2, 1 << 13), 2, dtype=torch.int64))
    assert third.data_ptr() == address and third.tolist() == [[2] * (1 << 13)] * 2
    assert second.tolist() == [1.0] * (1 << 15)


def test_memory_that_was_first_used_in_inference_mode_can_be_used_outside_it() -> None:
    buffers = CopyBuffers()
    with torch.inference_mode():
        buffers.give_back(buffers.copy(torch.zeros(1 << 15)))
    assert buffers.copy(torch.ones(1 << 15)).sum() == 1 << 15

"""The operations that torch's FlopCounterMode counts, with formulas for those where it is wrong or counts none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fxdebug.features.memory.following.followed_run import named_tensors

aten = torch.ops.aten
Shape = Sequence[int]


def _attention(q: Shape, k: Shape, v: Shape, *rest: Any, out_shape: Any = None, **options: Any) -> int:
    return int(2 * q[0] * q[1] * q[2] * k[-2] * (q[3] + v[-1]))


def _attention_backward(grad: Shape, q: Shape, k: Shape, v: Shape, *rest: Any, out_shape: Any = None, **o: Any) -> int:
    return int(2 * q[0] * q[1] * q[2] * k[-2] * (3 * q[3] + 2 * v[-1]))


def _convolution_backward(
    grad: Shape, x: Shape, weight: Shape, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, mask: Sequence[bool], out_shape: Any = None, **options: Any,
) -> int:  # fmt: skip
    one = 2 * math.prod(x if transposed else grad) * math.prod(weight[1:])
    return one * sum(map(bool, mask[:2]))


def _grouped(a: Shape, b: Shape, *rest: Any, out_shape: Any = None, **options: Any) -> int:
    return int(2 * a[0] * a[1] * b[1]) if len(a) == len(b) == 2 else int(2 * math.prod(out_shape) * a[-1])


def _vector(a: Shape, b: Shape, *rest: Any, out_shape: Any = None, **options: Any) -> int:
    return 2 * math.prod(a)


def _added_vector(added: Shape, a: Shape, b: Shape, *rest: Any, out_shape: Any = None, **options: Any) -> int:
    return 2 * math.prod(a)


# Operations where FlopCounterMode of torch 2.13 is wrong, and the reason.
REPAIRED: dict[Any, tuple[Callable[..., int], str]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: (_attention, "0 for the kernel of the CPU"),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: (_attention_backward, "0 for the kernel of the CPU"),
    aten.convolution_backward: (_convolution_backward, "gradients of grouped weights count as those of dense ones"),
    aten._grouped_mm: (_grouped, "0"),
    aten.mv: (_vector, "0"),
    aten.dot: (_vector, "0"),
    aten.vdot: (_vector, "0"),
    aten.addmv: (_added_vector, "0"),
}  # fmt: skip


def run(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def torchs_count(model: nn.Module, inputs: Any, *, repaired: bool = True) -> tuple[int, int]:
    """Operations of the forward, and of the backward of a loss that depends on all results.

    Without oneDNN an LSTM runs as products, which can be counted, and not as one kernel.
    """
    formulas = {operation: formula for operation, (formula, _) in REPAIRED.items()} if repaired else {}
    flags = torch.backends.mkldnn.flags(enabled=not repaired)
    with flags, FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        output = run(model, inputs)
        forward = counter.get_total_flops()
        tensors = [tensor for _, tensor in named_tensors(output)]
        losses = [
            (tensor.abs() if tensor.is_complex() else tensor.float()).sum()
            for tensor in tensors
            if tensor.requires_grad
        ]
        if losses:
            torch.autograd.backward(losses)
    return forward, counter.get_total_flops() - forward

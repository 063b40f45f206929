"""Which zoo models have numbers that deserve a finding; no other one does."""

from __future__ import annotations

# Zoo models that make NaN or infinities by themselves, and what is right to say about each.
NOT_HEALTHY = {
    "tensors/nan": [("nan", "log")],  # it emits log(x - 100) on purpose
    "tensors/some-nan-and-inf": [("inf", "div"), ("nan", "mul")],  # x / 0, and x * nan
    "tensors/overflow-float16": [("inf", "mul")],  # x * 6e4 in float16
}
# Where advice is all there is to say: it is no alarm, but it is not silence either.
ADVISED = {"tensors/huge-and-tiny": ["float16"]}

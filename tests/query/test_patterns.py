"""Patterns of operations: found through scaling and across modules."""

from __future__ import annotations

from support.asked import ids


def test_a_pattern_is_found_through_scaling_and_across_modules(asked):
    found = asked.pattern(["matmul", "softmax", "matmul"])
    assert [ids(match) for match in found] == [
        [f"layers.{i}#0/matmul", f"layers.{i}.softmax#0/softmax", f"layers.{i}#0/matmul_1"] for i in (0, 1)
    ]
    assert asked.pattern(["matmul", "softmax"], within=0) == []  # the scaling lies between them
    assert len(asked.pattern(["mat*", "div", "soft*"], within=0)) == 2
    assert asked.pattern(["log", "matmul"]) == []

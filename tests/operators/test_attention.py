"""Attention that is written out is followed from its softmax to the product with the values, and to its projection."""

from __future__ import annotations

from typing import Any

import pytest

from fxdebug.operators.attention import MULTI_HEAD, OutputFlow, SoftmaxFlow, WeightedSum, bound


class T:
    """A tensor that is a name and a shape."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape


def flow() -> SoftmaxFlow[T]:
    return SoftmaxFlow(lambda a, b: a is b, lambda x: x.shape)


SCORES, VALUES = T(2, 4, 3, 5), T(2, 4, 5, 8)


def after(*steps: tuple[str, tuple[Any, ...], T]) -> WeightedSum[T] | None:
    """Follow some operations, (name, arguments, result); return what the last one computes."""
    following, found = flow(), None
    for name, args, result in steps:
        found = following.step(name, args, [x for x in args if isinstance(x, T)], result)
    return found


def test_a_softmax_and_a_product_are_attention() -> None:
    weights = T(2, 4, 3, 5)
    one = ("softmax", (SCORES, -1), weights)
    assert after(one, ("matmul", (weights, VALUES), T(2, 4, 3, 8))) == WeightedSum(weights, weights, VALUES, False)
    assert after(("softmax", (SCORES, 3), weights), ("matmul", (weights, VALUES), T(1)))
    assert after(("softmax", (SCORES, True), weights), ("matmul", (weights, VALUES), T(1)))
    for first in (("softmax", (SCORES, 2), weights), ("softmax", (SCORES, 0), weights)):
        assert after(first, ("matmul", (weights, VALUES), T(1))) is None
    for given in ((weights, T(2, 4, 6, 8)), (VALUES, weights), (weights, T(5)), (weights,)):
        assert after(one, ("matmul", given, T(1))) is None
    assert after(one, ("baddbmm", (weights, VALUES, VALUES), T(1))) is None
    assert after(one, ("baddbmm", (SCORES, weights, VALUES), T(1)))
    flat = T(3, 5)
    assert after(("softmax", (flat, -1), flat), ("matmul", (flat, T(5, 8)), T(3, 8))) is None
    cube = T(2, 3, 5)
    assert after(("softmax", (cube, -1), cube), ("matmul", (cube, T(2, 5, 8)), T(2, 3, 8)))
    assert after(one, ("matmul", (weights, VALUES), T(1)), ("matmul", (weights, VALUES), T(1))) is None  # told once


def test_what_lies_between_keeps_the_weights_or_makes_others() -> None:
    weights, then = T(2, 4, 3, 5), T(2, 4, 3, 5)
    one, product = ("softmax", (SCORES, -1), weights), ("matmul", (then, VALUES), T(1))
    assert after(one, ("dropout", (weights,), then), product) == WeightedSum(weights, then, VALUES, True)
    assert after(one, ("to", (weights,), then), product) == WeightedSum(weights, then, VALUES, False)
    assert after(one, ("mul", (weights, SCORES), then), product) == WeightedSum(then, then, VALUES, False)
    assert after(one, ("relu", (weights,), then), product) is None
    folded, flat = T(8, 3, 5), T(8, 5, 8)
    assert after(one, ("view", (weights,), folded), ("bmm", (folded, flat), T(1))) is None  # names are canonical
    assert after(one, ("view", (weights,), folded), ("matmul", (folded, flat), T(1))).weights is weights
    small = T(8, 3, 5)
    wide = T(2, 4, 3, 5)
    three = ("softmax", (T(8, 3, 5), -1), small)
    assert after(three, ("view", (small,), wide), ("matmul", (wide, VALUES), T(1))).weights is wide


@pytest.mark.parametrize(
    ("equation", "order", "found"),
    [
        ("bhqk,bhkd->bhqd", 0, True),
        ("b h q k, b h k d -> b h q d", 0, True),
        ("bhqk,bhkd->bhkd", 0, False),
        ("bhqk,bhkd->bhd", 0, False),
        ("bhqk,bhkd", 0, False),
        ("k,kd->d", 0, False),
        ("bhkd,bhqk->bhqd", 1, False),
    ],
)
def test_an_einsum_must_sum_over_the_keys(equation: str, order: int, found: bool) -> None:
    weights = T(2, 4, 3, 5)
    given = (weights, VALUES) if order == 0 else (VALUES, weights)
    one = ("softmax", (SCORES, -1), weights)
    assert (after(one, ("einsum", (equation, *given), T(1))) is not None) is found


def test_eight_softmaxes_are_followed_at_most() -> None:
    following, made = flow(), [T(2, 4, 3, 5) for _ in range(9)]
    for weights in made:
        following.step("softmax", (SCORES, -1), [SCORES], weights)
    told = [following.step("matmul", (x, VALUES), [x, VALUES], T(1)) is not None for x in made]
    assert told == [False, *[True] * 8]


def test_an_output_is_followed_to_its_projection() -> None:
    following = OutputFlow[T](lambda a, b: a is b)
    out, turned, joined, other = T(1), T(1), T(1), T(1)
    following.begin(out, 7)
    assert following.step("transpose", [out], turned) is None and following.step("reshape", [turned], joined) is None
    assert following.step("linear", [other, other, joined], T(1)) is None  # a bias
    assert following.step("relu", [joined], other) is None and following.step("linear", [other], T(1)) is None
    assert following.step("linear", [joined, other], T(1)) == 7
    assert following.step("linear", [joined, other], T(1)) is None
    following.begin(out, 8)
    assert following.step("addmm", [other, out, joined], T(1)) == 8


def test_arguments_have_the_names_of_their_parameters() -> None:
    assert bound(MULTI_HEAD, range(12), {"training": True}) == {
        "query": 0,
        "key": 1,
        "value": 2,
        "embed_dim_to_check": 3,
        "num_heads": 4,
        "in_proj_weight": 5,
        "in_proj_bias": 6,
        "bias_k": 7,
        "bias_v": 8,
        "add_zero_attn": 9,
        "dropout_p": 10,
        "out_proj_weight": 11,
        "training": True,
    }

"""Whether targets belong to their inputs is told from the rows of the batches alone."""

from __future__ import annotations

import numpy as np
import torch

from fxdebug.features.shared.records.learning import SameInputs
from fxdebug.features.training.pairs.fitting_rows import fitting
from fxdebug.features.training.pairs.same_inputs import Repeated
from fxdebug.features.training.pairs.turned_targets import Turned


def test_inputs_that_come_again_with_their_targets_are_alike() -> None:
    x, y, seen = torch.randn(60, 3), torch.arange(60) % 4, Repeated()
    for _ in range(3):
        seen.add([x], y)
    assert seen.facts() == SameInputs(120, 1.0, 0.25, 0.0167, 1.0)


def test_inputs_that_come_again_with_others_are_alike_as_often_as_by_chance() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y, seen = torch.randn(60, 3, generator=draw), torch.arange(60) % 4, Repeated()
    for _ in range(20):
        seen.add([x], y[torch.randperm(60, generator=draw)])
    facts = seen.facts()
    assert facts is not None
    assert (facts.again, facts.chance, abs(facts.alike - 0.25) < 0.05) == (1140, 0.25, True)


def test_rows_of_zeros_and_ones_are_told_apart() -> None:
    rows = torch.eye(80)
    seen = Repeated()
    for _ in range(4):
        seen.add([rows], torch.arange(80))
    facts = seen.facts()
    assert facts is not None and (facts.again, facts.alike) == (240, 1.0)


def test_a_centre_that_is_known_by_distances_alone_is_no_target_that_differs() -> None:
    draw, seen = torch.Generator().manual_seed(0), Repeated()
    x, centre = torch.randn(60, 3, generator=draw), torch.tensor([0.1, -0.1])
    for _ in range(4):
        answers = torch.randn(60, 2, generator=draw)
        seen.add([x], answers - (answers - centre))
    assert seen.facts() is None


def test_rows_of_numbers_that_come_again_with_others_are_alike_by_chance() -> None:
    draw, seen = torch.Generator().manual_seed(0), Repeated()
    x, y = torch.randn(60, 3, generator=draw), torch.randn(60, 2, generator=draw)
    for _ in range(20):
        seen.add([x], y[torch.randperm(60, generator=draw)])
    facts = seen.facts()
    assert facts is not None and (facts.chance, facts.alike < 0.1) == (0.0, True)


def test_a_tensor_that_is_no_row_of_the_batch_tells_nothing() -> None:
    seen = Repeated()
    for step in range(20):
        seen.add([torch.ones(16, 2), torch.full((3,), float(step))], torch.arange(16))
    assert seen.facts() is None


def test_targets_in_their_own_order_fit_and_what_batches_have_in_common_is_seen() -> None:
    draw = np.random.default_rng(0)
    x = [draw.normal(size=(32, 4)) for _ in range(6)]
    same = fitting([(one, one[:, :1]) for one in x])
    other = fitting([(one, sign * one[:, :1]) for one, sign in zip(x, (1, -1, 1, -1, 1, -1), strict=True)])
    assert same is not None and same.own is not None and same.across is not None
    assert other is not None and other.own is not None and other.across is not None
    assert same.own > 8 and same.across > 0.4 * same.own
    assert other.own > 8 and other.across < 0.4 * other.own


def test_masks_that_are_turned_are_counted_with_the_way() -> None:
    draw, seen = torch.Generator().manual_seed(0), Turned()
    masks = (torch.rand(20, 1, 12, 12, generator=draw) > 0.5).float()
    pictures = masks.clone()
    pictures[:8] = pictures[:8].flip(-2)
    seen.add(pictures, masks)
    assert seen.most == (8, "upside down", 20)
    whole = Turned()
    whole.add(masks, masks)
    assert whole.most is None


def test_velocities_to_which_noise_adds_are_not_turned() -> None:
    draw, seen = torch.Generator().manual_seed(0), Turned()
    clean = torch.linspace(-1, 1, 8)[:, None] * torch.randn(1, 8, generator=draw)
    for _ in range(4):
        noise, share = 0.5 * torch.randn(32, 8, 8, generator=draw), torch.rand(32, 1, 1, generator=draw)
        seen.add((1 - share) * noise + share * clean, clean - noise)
    assert sum(seen.how.values()) > 4
    assert seen.most is None

"""Objects that a model can reach, and objects that it cannot."""

from __future__ import annotations

import functools

import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture.replay.reachable import ReachableObjects


def test_recordings_are_not_among_the_reachable_objects_of_a_model() -> None:
    found: list[set[str]] = []

    class Looking(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            reachable = ReachableObjects(self)
            found.append(
                {type(thing).__module__.partition(".")[0] for thing in (*reachable.stateful, *reachable.slotted)}
            )
            return super().forward(x)

    fx_debug(Looking(2, 2), torch.ones(1, 2), graph=False)
    assert found and all("fxdebug" not in homes for homes in found)


class Caches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    @functools.lru_cache  # noqa: B019
    def scales(self, size: int) -> list[nn.Module]:
        return [self.linear] * size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scales(2)[0](x)


def test_a_cache_of_a_method_leads_to_no_other_model() -> None:
    models = [Caches() for _ in range(20)]
    for model in models:
        model(torch.ones(2, 3))
    dicts = ReachableObjects(models[-1]).dicts
    assert [each for each in dicts if each is models[-1].linear.__dict__]
    assert not [each for each in dicts for other in models[:-1] if each is other.linear.__dict__]
    assert [call.status for call in fx_debug(models[-1], torch.ones(2, 3)).calls] == ["verified", "verified"]

"""A checksum differs when a tensor's data does, by compiled code and by numpy."""

from __future__ import annotations

import pytest
import torch

from fxdebug.capture.tensors import checksum

pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
def test_the_checksum_of_data_is_the_same_until_one_element_changes_and_again_when_it_is_back(dtype) -> None:
    for count in (1, 31, 32, 33, 100, 4099):
        data = (torch.arange(count) % 7 - 3).to(dtype)
        reader = checksum.reader_of(data)
        assert reader is not None
        before = reader()
        for place in {0, count // 2, count - 1}:
            had = data[place].clone()
            data[place] = not had if dtype is torch.bool else had + 1
            assert reader() != before, (count, place)
            data[place] = had
            assert reader() == before, (count, place)


def test_a_nan_has_a_checksum_like_any_other_number() -> None:
    data = torch.tensor([1.0, float("nan"), float("inf")])
    reader = checksum.reader_of(data)
    assert reader is not None and reader() == reader()

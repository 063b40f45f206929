"""Mappings and what to ignore: what the user says of names, from a dictionary or a file."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.comparison.compare_traces import pair_traces
from fxdebug.errors import LoadError, UsageError
from support.blocks import changed, model, run


def test_a_mapping_names_what_belongs_together():
    one, other = model(), nn.Sequential()
    other.core = model()
    pairs = pair_traces(run(one), run(other), {"blocks.*": "core.blocks.*", "head": "core.head"})
    how = {pairs.b.trace.calls[index].path: found.matched_by for index, found in pairs.calls.items()}
    assert how["core.blocks.1.up"] == "mapping" and how["core.head"] == "mapping" and how[""] == "path"


def test_a_mapping_is_read_from_yaml_with_what_to_ignore(tmp_path):
    file = tmp_path / "names.yaml"
    file.write_text("mapping:\n  head: head\nignore:\n  - blocks.1.*\n")
    one, other = model(), model()
    with torch.no_grad():
        other.blocks[1].up.bias += 1
    comparison = fxdebug.compare(run(one), run(other), mapping=file)
    assert "blocks.1.up" not in [row.path for row in comparison.findings]


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"block.*": "blocks.*"}, "no module of a has such a path"),
        ({"blocks.*": "block.*"}, "no module of b has such a path"),
        ({"blocks.*.*": "blocks.*"}, "both sides need the same number"),
    ],
)
def test_a_mapping_that_fits_nothing_says_so(mapping, says):
    with pytest.raises(UsageError, match=says):
        fxdebug.compare(run(model()), run(model()), mapping=mapping)


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1, 2]\n", "a: {b: c}: d\n"])
def test_a_file_that_is_no_mapping_says_so(text, tmp_path):
    file = tmp_path / "names.yaml"
    file.write_text(text)
    with pytest.raises(LoadError, match=r"names\.yaml"):
        fxdebug.compare(run(model()), run(model()), mapping=file)


def test_ignored_modules_do_not_count():
    comparison = changed(lambda other: other.blocks[1].up.bias.add_(1))
    assert comparison.first.path == "blocks.1.up"
    again = fxdebug.compare(comparison.a, comparison.b, ignore="blocks.1*")
    assert all(not row.path.startswith("blocks.1") for row in again.findings)

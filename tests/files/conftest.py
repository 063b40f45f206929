"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.stored import Small, run


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    run(Small(), values="tensors", save=tmp_path / "run")
    return tmp_path / "run"

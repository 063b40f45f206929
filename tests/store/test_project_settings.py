"""``[tool.fxdebug]`` of a ``pyproject.toml``: the nearest file, and errors that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxdebug.errors import UsageError
from fxdebug.store.project_settings import ProjectSettings, read_project_settings


def test_the_nearest_file_at_or_above_a_folder_is_read(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    path = tmp_path / "pyproject.toml"
    path.write_text('[tool.fxdebug]\noff = ["nan"]\nlimits.attention.leak = 1\n"limits"."numbers.headroom" = 2\n')
    limits = {"attention.leak": 1, "numbers.headroom": 2}
    assert read_project_settings(inner) == ProjectSettings(path, ("nan",), limits)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert read_project_settings(inner) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.fxdebug\n", "cannot be read"),
        ("\0", "cannot be read"),
        ("[tool]\nfxdebug = 3\n", "tool.fxdebug is no table"),
        ("[tool.fxdebug]\nof = ['nan']\n", r"has 'of': use off or limits\. Did you mean 'off'"),
        ("[tool.fxdebug]\noff = 'nan'\n", "off is no list of rules"),
        ("[tool.fxdebug]\noff = [3]\n", "off is no list of rules"),
        ("[tool.fxdebug]\nlimits = 3\n", "is no table of numbers"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_its_path(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        read_project_settings(tmp_path)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)

"""What is built for others to install: extras, and a description that an index can show."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_description_leads_to_no_file_of_the_repository() -> None:
    text = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https?:)[^)]*\)|<img|src=", text) == []
    assert "urls" not in PROJECT  # until the project has a home


def test_the_extra_all_has_every_extra_but_those_for_its_makers() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"fxdebug[{','.join(name for name in extras if name not in ('all', 'demo', 'dev'))}]"


def test_the_source_archive_has_tests_and_documentation() -> None:
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").split("\n")
    grafted = {line.removeprefix("graft ") for line in lines if line.startswith("graft ")}
    assert {"tests", "docs", "examples", "tools"} <= grafted
    assert all((ROOT / folder).is_dir() for folder in grafted)

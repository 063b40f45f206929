"""The names that users import stand once: the files that editors and type checkers read are made from the list."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import fxdebug
from fxdebug import api
from fxdebug.api.names import FURTHER, PUBLIC, every_name, public_names
from fxdebug.moved import MOVED
from fxdebug.plugins.features import built_in

PACKAGE = Path(fxdebug.__file__).parent
HEAD = '"""Made from fxdebug/api/names.py and the features by tests/house/test_names.py --update-golden."""\n\n'


def stub(names: dict[str, str], *before: str) -> str:
    lines = sorted([f"from {module} import {name} as {name}" for name, module in names.items()])
    return HEAD + "\n".join([*before, *lines]) + "\n"


@pytest.mark.parametrize(
    "path, text",
    [
        ("__init__.pyi", stub(public_names(), "from fxdebug import api as api")),
        ("api/__init__.pyi", stub(every_name())),
    ],
)
def test_editors_and_type_checkers_see_the_names_of_the_list(
    path: str, text: str, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        (PACKAGE / path).write_text(text, encoding="utf-8")
    assert (PACKAGE / path).read_text(encoding="utf-8") == text, "--update-golden writes it"


def test_every_name_is_there_and_stands_in_the_list_once() -> None:
    assert sorted(fxdebug.__all__) == sorted(public_names())
    assert [name for name in public_names() if getattr(fxdebug, name) is not getattr(api, name)] == []
    assert [name for name in every_name() if getattr(api, name) is None] == []
    of_features = [name for one in built_in() for name in (*one.functions, *one.further)]
    listed = [*PUBLIC, *FURTHER, *of_features]
    assert len(listed) == len(set(listed))


def test_a_star_import_brings_all_names() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from fxdebug import *; print(check.__name__, watch.__name__, Call.__name__)"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["check", "watch", "Call"], done.stderr


def test_a_name_that_there_is_not_is_an_attribute_error_of_the_package() -> None:
    for module in (fxdebug, api):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
            module.nothing  # noqa: B018
    assert not hasattr(fxdebug, "findings_of_model")  # of fxdebug.api alone


@pytest.mark.parametrize("old", MOVED)
def test_a_documented_name_is_still_at_its_old_place_with_a_warning(old: str) -> None:
    module, new = importlib.import_module(old), importlib.import_module(MOVED[old])
    name = next(
        name
        for name in vars(new)
        if name.endswith(("Limits", "WatchCallback", "Runs", "TrainingFile", "TraceRegression"))
    )
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        assert getattr(module, name) is getattr(new, name)
    with pytest.raises(AttributeError, match="no attribute"):
        module.nothing  # noqa: B018

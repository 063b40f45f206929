"""Packages whose names only begin like torch's, Python's or numpy's are not theirs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug, last_failed
from fxdebug.capture.torch_state.whose_code import (
    is_library,
    is_of_python,
    is_part_of,
    is_pythons_file,
    is_torchs_file,
)

TORCH = str(Path(torch.__file__).parent)
PYTHON = str(Path(os.__file__).parent)
SOURCE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return y.relu() + 1
"""


def module_at(monkeypatch: pytest.MonkeyPatch, name: str, file: str) -> Any:
    """Return a Python module of this name whose code claims to lie in this file."""
    module = ModuleType(name)
    module.__file__ = file
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(SOURCE, file, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("package", ["vision", "audio", "_geometric", "tune", "metrics", "-extra"])
def test_operations_and_calls_of_a_package_beside_torch_have_its_lines(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    file = os.path.join(TORCH + package, "models", "block.py")
    block = module_at(monkeypatch, f"torch{package}.models.block", file).Block()
    trace = fx_debug(nn.Sequential(block), torch.ones(2, 4))
    assert [call.source for call in trace.find("0.linear")] == [f"{file}:11"]
    assert [(op.op, op.source) for op in trace.ops(path="0")] == [("relu", f"{file}:12"), ("add", f"{file}:12")]


def test_an_exception_of_a_package_beside_torch_began_in_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    file = os.path.join(TORCH + "tune", "block.py")
    block = module_at(monkeypatch, "torchtune.block", file).Block()
    block.linear = nn.Identity()
    with pytest.raises(AttributeError):
        fx_debug(block, "no tensor")
    failed = last_failed()
    assert failed is not None and failed.root.error is not None
    assert failed.root.error.source == f"{file}:12"


@pytest.mark.parametrize(
    ("module", "packages", "is_part"),
    [
        ("torch", ["torch"], True),
        ("torch.nn.functional", ["torch"], True),
        ("torchvision.ops", ["torch"], False),
        ("torch_geometric", ["torch"], False),
        ("torch.nnx", ["torch.nn"], False),
        ("numpyro.infer", ["numpy"], False),
        ("numpy.random", ["torch", "numpy"], True),
        ("transformers_extra", ["torch", "transformers"], False),
        (None, ["torch"], False),
    ],
)
def test_a_module_is_part_of_a_package_only_below_it(module: str | None, packages: list[str], is_part: bool) -> None:
    assert is_part_of(module, *packages) is is_part


@pytest.mark.parametrize("beside", ["torchvision/ops.py", "torch.py", "torch2/__init__.py"])
def test_files_beside_torch_are_not_torchs(beside: str) -> None:
    assert is_torchs_file(os.path.join(TORCH, "nn", "functional.py"))
    assert not is_torchs_file(os.path.join(os.path.dirname(TORCH), beside))


@pytest.mark.parametrize("below", ["site-packages/x.py", "dist-packages/y/z.py"])
def test_installed_packages_are_not_pythons(below: str) -> None:
    assert is_pythons_file(os.__file__) and not is_pythons_file(os.path.join(PYTHON, below))
    assert not is_pythons_file(f"{PYTHON}-mine/os.py")


def test_a_program_beside_the_standard_library_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    is_library.cache_clear()
    module_at(monkeypatch, "jsonic", f"{PYTHON}-mine/jsonic.py")
    assert not is_library("jsonic") and not is_of_python("jsonic") and is_library("json")
    is_library.cache_clear()

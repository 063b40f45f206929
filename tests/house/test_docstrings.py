"""Every public name says what it does, with types, and what its docstring shows is what happens."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fxdebug
from fxdebug import api
from fxdebug.api import comparison, trace
from fxdebug.api.reports.findings import Findings
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.result import Row, Side
from fxdebug.data.findings import Finding
from fxdebug.errors import MissingExtra
from fxdebug.exports import registry
from fxdebug.features.shadow.report import Shadow
from fxdebug.query.edges import Edge
from fxdebug.query.network import Node

SOURCE = Path(fxdebug.__file__).parent
RETURNED = (api.Comparison, Row, Side, Measures, Finding, Findings, Shadow, Node, Edge)  # what public functions return
MODULES = ["fxdebug", *(m.name for m in pkgutil.walk_packages([str(SOURCE)], "fxdebug.") if "__main__" not in m.name)]


def examples(module: str) -> list[doctest.DocTest]:
    """The examples of a module; none of one whose library is not installed (MLflow, wandb: `make programs`)."""
    try:
        imported = importlib.import_module(module)
    except MissingExtra:
        return []
    found = doctest.DocTestFinder(exclude_empty=True).find(imported)
    return [test for test in found if test.examples]


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function and every public method of the names that ``fxdebug`` offers."""
    named = {name: getattr(fxdebug, name) for name in fxdebug.__all__}
    for name, thing in {**named, **{kind.__name__: kind for kind in RETURNED}}.items():
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            for member, descriptor in inspect.getmembers_static(thing):
                function = descriptor.fget if isinstance(descriptor, property) else descriptor
                if inspect.isfunction(function) and not member.startswith("_") and "fxdebug" in function.__module__:
                    yield f"{name}.{member}", function


API = dict(public_functions())


def has_examples(module: str) -> bool:
    """Does the text of a module have an example? Nothing is imported while tests are collected."""
    place = SOURCE.parent.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ">>> " in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [module for module in MODULES if has_examples(module)])
def test_the_examples_in_docstrings_print_what_they_show(module: str) -> None:
    runner = doctest.DocTestRunner(verbose=False)
    written: list[str] = []
    for test in examples(module):
        runner.run(test, out=written.append)
    assert "".join(written) == ""


def test_an_example_that_shows_something_else_is_noticed() -> None:
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None).failed == 1


def test_the_functions_one_calls_first_have_an_example() -> None:
    shown = {test.name for module in MODULES for test in examples(module)}
    assert {"fxdebug", "fxdebug.api.run_model.fx_debug", "fxdebug.api.trace.Trace"} <= shown


def test_the_api_is_not_empty() -> None:
    assert {"fx_debug", "load", "Trace.find", "Trace.save", "Trace.graph_at", "Call.walk", "Value.label"} <= set(API)


@pytest.mark.parametrize("name", API)
def test_a_public_function_has_a_docstring_and_a_type_for_everything(name: str) -> None:
    function = API[name]
    text = inspect.getdoc(function)
    assert text and text[0].isupper() | (text[0] in "`\"'") and text.splitlines()[0].rstrip()[-1] in ".:;,…`?", text
    signature = inspect.signature(function)
    assert signature.return_annotation is not signature.empty
    untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
    assert untyped == []


@pytest.mark.parametrize("name", [name for name in fxdebug.__all__ if inspect.isclass(getattr(fxdebug, name))])
def test_a_public_class_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(vars(getattr(fxdebug, name)).get("__doc__") and getattr(fxdebug, name))
    assert text and not text.startswith(f"{name}("), f"{name} has only the docstring dataclass made"


# Parameters and results that may be anything: what a model takes, what it returns, and JSON.
ANYTHING = {
    "fx_debug.inputs", "fx_debug.kwargs", "fx_debug.model", "compare_models.inputs", "compare_models.kwargs",
    "edit.inputs", "edit.kwargs", "patch.index", "replay.changes",
    "debug.backward", "debug.inputs", "debug.kwargs", "debug.model",
    "compare_models.inputs_b", "shadow.inputs", "shadow.kwargs", "Trace.output",
    "Finding.as_json", "Findings.as_json", "Report.as_json", "Shadow.as_json", "Comparison.as_json",
    *(f"{function}.{name}" for function in ("profile", "memory", "gradients") for name in ("inputs", "kwargs", "loss")),
    *(f"compare_gradients.{name}" for name in ("inputs", "kwargs", "loss")),
    *(f"tune.{name}" for name in ("inputs", "kwargs", "loss", "optimizer")),
    "independent.inputs", "independent.kwargs",
    *(f"{function}.{name}" for function in ("flops", "summary", "export_onnx") for name in ("inputs", "kwargs")),
    *(f"{function}.{name}" for function in ("attention", "activations") for name in ("inputs", "kwargs", "model")),
    "activations.batches",
    *(f"weights.{name}" for name in ("other", "inputs", "kwargs", "batches")),
    *(f"check.{name}" for name in ("model", "inputs", "kwargs", "loss", "optimizer")),
}  # fmt: skip


def test_public_signatures_say_any_only_for_what_a_model_takes_and_returns() -> None:
    vague = set()
    for name, function in API.items():
        signature = inspect.signature(function)
        if re.search(r"\bAny\b", str(signature.return_annotation)):
            vague.add(name)
        parameters = signature.parameters.values()
        vague |= {f"{name}.{p.name}" for p in parameters if re.search(r"\bAny\b", str(p.annotation))}
    assert vague == ANYTHING


def test_public_signatures_name_their_options() -> None:
    """An editor completes them: ``**options`` only with a TypedDict that names each."""
    nameless = [
        f"{name}(**{p.name})"
        for name, function in API.items()
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.VAR_POSITIONAL or (p.kind is p.VAR_KEYWORD and not str(p.annotation).startswith("Unpack["))
    ]
    assert nameless == []


def test_the_options_of_export_are_those_of_the_exporters() -> None:
    kinds: tuple[tuple[registry.Kind, object], ...] = (
        ("trace", trace.ExportOptions),
        ("comparison", comparison.ExportOptions),
    )
    for kind, options in kinds:
        forms = [*registry.suffixes(kind), *registry.names(kind)]
        exporters = [registry.exporter(kind, form) for form in forms]
        assert set(options.__annotations__) == {name for write in exporters for name in registry.option_names(write)}


def test_every_option_of_fx_debug_is_explained_in_its_docstring() -> None:
    text = inspect.getdoc(fxdebug.fx_debug) or ""
    options = [name for name in inspect.signature(fxdebug.fx_debug).parameters if name != "model"]
    assert [name for name in options if f"``{name}" not in text] == []


def test_every_file_says_what_is_in_it() -> None:
    without = [path.name for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert without in ([], ["version.py"])


def public(tree: ast.Module) -> Iterator[str]:
    """Public functions and classes at the top of a file, and public methods of public classes."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.name
            if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in node.bases):
                for method in node.body:
                    is_public = isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
                    if is_public and not ast.get_docstring(method):
                        yield f"{node.name}.{method.name}"


def test_every_public_name_of_every_file_has_a_docstring() -> None:
    bare = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in public(ast.parse(path.read_text("utf-8")))
    ]
    assert bare == []


def test_types_of_the_api_can_be_looked_up() -> None:
    """Annotations are text; what they name must exist where the function was written."""
    import networkx
    import torch.fx

    for name, function in API.items():
        assert "return" in typing.get_type_hints(function, localns={"nn": torch.nn, "torch": torch, "nx": networkx}), (
            name
        )


RIDDLE = re.compile(r"(What|Who|Whoever|Whose|Those|Which|Where|How|Whatever|Why)\b")


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    """Only a predicate may be a question: "Is it …?"."""
    riddles = [
        f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 1)} {first}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if RIDDLE.match(first := (ast.get_docstring(node) or "").split("\n")[0]) and not first.endswith("?")
    ]
    assert riddles == []

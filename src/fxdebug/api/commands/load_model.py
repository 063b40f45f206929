"""Load a function of a file, the model and inputs that it returns, or a model of transformers."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fxdebug.errors import UsageError, needs


def function_of(target: str) -> Callable[[], Any]:
    """Run a file and return the function that ``FILE.py:function`` names. Raises ``UsageError`` where it cannot be."""
    path, _, name = target.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(f"{target!r} is not of the form FILE.py:function, such as model.py:build")
    if not Path(path).is_file():
        raise UsageError(f"there is no file {path}")
    sys.path.insert(0, str(Path(path).resolve().parent))
    stem = Path(path).stem
    module = types.ModuleType(stem if stem not in sys.modules else f"{stem} (given to fxdebug)")
    module.__file__ = path
    sys.modules[module.__name__] = module  # it stays there: dataclasses, pickle and type hints look it up
    try:
        exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    except Exception as error:
        raise UsageError(f"{path} {_raised(error, path)}") from error
    namespace = vars(module)
    factory = namespace.get(name)
    if not callable(factory):
        known = ", ".join(key for key, value in namespace.items() if callable(value) and not key.startswith("_"))
        raise UsageError(f"{path} defines no function {name!r}; it defines {known or 'none'}")
    _require_no_arguments(factory, name)
    return factory


def from_file(target: str) -> tuple[Any, Any]:
    """Return the model and inputs that the function of ``FILE.py:function`` returns."""
    factory = function_of(target)
    path, _, name = target.rpartition(":")
    try:
        result = factory()
    except Exception as error:
        raise UsageError(f"{name}() {_raised(error, path)}") from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise UsageError(f"{name}() must return (model, inputs), not {type(result).__name__}")
    return result


def _require_no_arguments(factory: Callable[..., Any], name: str) -> None:
    import inspect

    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # written in C
        return
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if required:
        raise UsageError(
            f"{name} takes arguments ({', '.join(required)}) and fxdebug has none to give: "
            f"name a function without any that returns (model, inputs)"
        )


def _raised(error: Exception, path: str) -> str:
    """Return a text about an exception, with the last line of the user's file that it passed."""
    import traceback

    if isinstance(error, SyntaxError) and error.filename == path:
        return f"cannot be read: {error.msg} ({path}:{error.lineno})"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    where = f" ({path}:{lines[-1]})" if lines else ""
    text = str(error).strip()
    return f"raised {type(error).__name__}{where}" + (f": {text}" if text else "")


def transformers_model(name: str, texts: Sequence[str]) -> tuple[Any, Any]:
    """Return a transformers model, of the class that its configuration names, and tokenised text."""
    try:
        import transformers
    except ImportError as error:
        raise needs("loading a transformers model", "transformers", "transformers") from error
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        classes = [getattr(transformers, kind, None) for kind in config.architectures or ()]
        model = (next(filter(None, classes), transformers.AutoModel)).from_pretrained(name).eval()
    except (OSError, ValueError) as error:
        raise UsageError(f"no model can be loaded from {name!r}: {error}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None and len(texts) > 1:
        raise UsageError(f"the tokenizer of {name!r} has no padding token: give one --text at a time")
    batch = tokenizer(list(texts) or ["Hello, world."], padding=len(texts) > 1, return_tensors="pt")
    return model, batch


def tokenizer_of(name: str) -> Any:
    """Return the tokenizer of a transformers model, which names the tokens of its inputs."""
    import transformers

    return transformers.AutoTokenizer.from_pretrained(name)


def with_decoder_start(model: Any, batch: Any) -> dict[str, Any]:
    """Return the inputs; for an encoder-decoder model that needs it, with the first token of the decoder."""
    import inspect

    import torch

    inputs, start = dict(batch), getattr(model.config, "decoder_start_token_id", None)
    takes = inspect.signature(model.forward).parameters
    if model.config.is_encoder_decoder and start is not None and "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = torch.full((len(inputs["input_ids"]), 1), start)
    return inputs

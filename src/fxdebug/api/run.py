"""``fx_debug``: run a model once, keep what was asked for, return the trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug.api.files import rank_folder
from fxdebug.errors import SaveError, UsageError
from fxdebug.trace import Trace
from fxdebug.values import Value

if TYPE_CHECKING:
    from torch import nn

VALUES = ("stats", "samples", "repr", "tensors")

_last_failed: Trace | None = None


def fx_debug(
    model: nn.Module | Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    save: str | os.PathLike[str] | None = None,
    values: str = "stats",
    prune: bool = False,
    progress: bool | None = None,
    method: str = "forward",
    weights: bool | None = None,
    graph: bool = True,
    budget: int = 256 * 1024 * 1024,
    stop_on_nonfinite: bool = False,
) -> Trace:
    """Run a model once, as it would have run, and return the :class:`Trace` of everything it called.

    ``inputs``: a tensor is the one positional argument, a tuple or list are the positional arguments,
    a mapping (also a tokenizer's ``BatchEncoding``) the keyword arguments, to which ``kwargs`` adds.
    ``save``: a folder to write the run to. ``values``: ``"stats"`` keeps numbers only, ``"samples"`` also
    a few elements of each tensor (for golden runs), ``"repr"`` its printed form, ``"tensors"`` its data as
    safetensors, with at most ``budget`` bytes waiting in memory. ``prune``: leave middle layers out of the
    standard JSON, as transformers does.
    ``progress``: a line on the terminal; ``None`` shows it on long runs when somebody is looking.
    ``method``: the method to call instead of the model itself, e.g. ``"generate"`` (a bound method in
    place of ``model`` does the same). ``weights``: statistics of all parameters; ``None`` when they are few.
    ``graph=False`` leaves out the operations: a tree of calls alone costs less. ``stop_on_nonfinite`` ends the run with
    ``NonFinite`` at the operation (without graphs: the call) that makes the first NaN or infinity nobody meant.

    Gradient mode, training flags and random numbers are left alone. What the model raises is raised
    unchanged, after the partial run was saved; :func:`last_failed` has it. Raises ``UsageError`` for
    arguments that cannot work and ``SaveError`` before the run for a folder that cannot be written.

    >>> import torch
    >>> trace = fx_debug(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()), torch.ones(1, 4))
    >>> [(call.path, call.type) for call in trace.calls]
    [('', 'Sequential'), ('0', 'Linear'), ('1', 'ReLU')]
    """
    from fxdebug.capture import distributed
    from fxdebug.capture import progress as progress_line
    from fxdebug.capture.recording import Options
    from fxdebug.capture.run import run_once
    from fxdebug.capture.stop import StopOnNonFinite

    if values not in VALUES:
        raise UsageError(f"values={values!r}: use one of {', '.join(map(repr, VALUES))}")
    module, target, method = _target(model, method)
    args, keywords = arguments(inputs, kwargs)
    rank = distributed.rank_and_size()
    folder = None if save is None else rank_folder(Path(save), rank[0] if rank else None)
    run = _Run(folder, values, budget)
    try:
        shown = progress_line.line(progress, type(module).__name__)
        options = Options(
            keeper=run.kept if run.samples is None else run.samples,
            shown=run.shown,
            listeners=shown,
            weights=weights,
            watching=run.watching,
            graph=graph,
            watcher=StopOnNonFinite() if stop_on_nonfinite else None,
        )
        settings = settings_of(values=values, method=method, prune=prune, rank=rank)
        trace, raised = run_once(target, module, args, keywords, options, settings)
        for line in shown:
            line.close()
        trace = run.finish(trace, module, prune, raised)
    finally:
        run.close()
    if raised is not None:
        _remember(trace)
        raise raised
    return trace


class _Run:
    """One recording's store: where its values go while it runs, and its files afterwards."""

    def __init__(self, folder: Path | None, values: str, budget: int) -> None:
        self.folder = folder
        self.place: Any = None  # where the run is written: it becomes the folder, or lives as long as the trace
        self.shards: Any = None
        self.kept: Any = None
        self.samples: Any = None
        self._journal: Any = None
        if folder is not None or values != "stats":
            try:
                self._keep(folder, values, budget)
            except BaseException:
                self.close()
                raise
        # objects are shown alike whatever is kept of tensors: the standard tree has their text in any case
        self._printer: Any = None if self.kept is None else self.kept.printer
        self._values: Sequence[Value] = ()

    def _keep(self, folder: Path | None, values: str, budget: int) -> None:
        from fxdebug.store.folder import Workplace, next_shard
        from fxdebug.store.kept import Kept
        from fxdebug.store.samples import Samples
        from fxdebug.store.tensors import Shards

        if folder is not None or values == "tensors":
            self.place = Workplace(folder)
        if values == "tensors":
            self.shards = Shards(self.place.path, budget=budget, first=next_shard(folder))
            self.kept = Kept(self.place, words=False, bodies=self.shards)
        elif values == "repr":
            self.kept = Kept(Workplace(), text=True)
        elif values == "samples":
            self.samples = Samples()

    def shown(self, thing: Any) -> str:
        """The ``repr`` of an object, under the print options its text is wanted in."""
        if self._printer is None:
            from fxdebug.store.printed import Printer

            self._printer = Printer(120)
        if self.kept is None and self._values:
            self._printer.begin()
        return self._printer.shown(thing)

    def watching(self, model: str, values: list[Value]) -> tuple[Any, ...]:
        """Listeners that need the recording itself: the journal of a run that is saved."""
        self._values = values
        if self.folder is None:
            return ()
        from fxdebug.store.journal import Journal

        self._journal = Journal(self.place.path, model, values)
        return (self._journal,)

    def finish(self, trace: Trace, model: Any, prune: bool, raised: BaseException | None) -> Trace:
        """Complete the trace, which nobody has yet, with where its values lie, and write its files."""
        from fxdebug.capture.values import complete

        try:
            if self.shards is not None:
                for number, (saved, digest) in self.shards.finish().items():
                    complete(trace.values[number], saved=saved, digest=digest)
            if self.kept is not None or self.samples is not None:
                trace = replace(trace, data=self.samples if self.kept is None else self.kept)
            return trace if self.folder is None else self._publish(trace, self.folder, model, prune)
        except SaveError as error:
            if raised is not None:  # the model's own exception is the one to be told
                raised.add_note(f"fxdebug: {error}")
                return trace
            error.trace = trace  # type: ignore[attr-defined]
            raise

    def _publish(self, trace: Trace, folder: Path, model: Any, prune: bool) -> Trace:
        from fxdebug.store.folder import publish, publishing
        from fxdebug.store.run_files import write_run
        from fxdebug.store.saved import Saved

        with publishing:
            try:
                shards = self._settled(trace, self.place.target)
                written = None if self._journal is None else self._journal.rows
                names = write_run(trace, self.place.path, prune=prune, written=written)
            except OSError as error:
                raise SaveError(f"cannot write to {folder}: {error.strerror or error}") from error
            publish(self.place.path, self.place.target, [*shards, *names], "trace", model)
        words = None if self.kept is None else self.kept.words
        data = trace.data if self.shards is None and trace.data is not None else Saved(self.place.target, words)
        return replace(trace, data=data, folder=folder)

    def _settled(self, trace: Trace, folder: Path) -> list[str]:
        """The names of the shards, other ones than they were written under where another run took those meanwhile."""
        from fxdebug.capture.values import complete
        from fxdebug.store.folder import next_shard
        from fxdebug.store.load import moved

        files: list[Path] = [] if self.shards is None else self.shards.files
        if not any((folder / file.name).exists() for file in files):
            return [file.name for file in files]
        first = next_shard(folder) + len(files)  # beyond their own numbers, too: none is overwritten on the way
        names = {file.name: f"tensors-{first + i:04d}.safetensors" for i, file in enumerate(files)}
        for file in files:
            file.rename(file.with_name(names[file.name]))
        for value in trace.values:
            complete(value, saved=moved(value.saved, names))
        return list(names.values())

    def close(self) -> None:
        """Leave nothing behind in the folder but what was published."""
        if self.shards is not None:
            self.shards.stop()
        if self._journal is not None:
            self._journal.close()
        if self.place is not None and self.folder is not None:
            self.place.close()


def _target(model: Any, method: str) -> tuple[nn.Module, Callable[..., Any], str]:
    """The module to watch, what to call, and the name of the method."""
    from torch import nn

    owner = None if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    if isinstance(owner, nn.Module):
        name = getattr(model, "__name__", "method")
        if name == "forward":  # looked up when it is called: by then it is the one that is recorded
            return owner, lambda *args, **kwargs: owner.forward(*args, **kwargs), name
        return owner, model, name
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"fx_debug needs a torch.nn.Module or a method of one, not {type(model).__name__}: "
            "call it as fx_debug(model, inputs)"
        )
    if method == "forward":
        return model, model, method
    target = getattr(model, method, None)
    if not callable(target):
        raise UsageError(f"{type(model).__name__} has no method {method!r}")
    return model, target, method


def arguments(inputs: Any, kwargs: Mapping[str, Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from what people pass as inputs.

    >>> arguments([1, 2], {"scale": 3})
    ((1, 2), {'scale': 3})
    >>> arguments({"x": 1})
    ((), {'x': 1})
    """
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    if isinstance(inputs, (tuple, list)) and not hasattr(inputs, "_fields"):
        args = tuple(inputs)
    elif isinstance(inputs, Mapping):
        named = {str(name): value for name, value in inputs.items()}
    elif inputs is not None:
        args = (inputs,)
    twice = set(named) & set(kwargs or {})
    if twice:
        raise UsageError(f"given twice, in inputs and in kwargs: {', '.join(sorted(twice))}")
    return args, {**named, **(kwargs or {})}


def settings_of(**chosen: Any) -> dict[str, Any]:
    """What the text of the standard tree depends on, as data."""
    import torch
    from torch._tensor_str import PRINT_OPTS

    rank = chosen.pop("rank", None)
    settings = {
        **chosen,
        "precision": PRINT_OPTS.precision,
        "default_dtype": str(torch.get_default_dtype())[6:],
        "grad": torch.is_grad_enabled(),
    }
    if rank:
        settings["rank"], settings["world_size"] = rank
    return settings


def _remember(trace: Trace) -> None:
    global _last_failed
    _last_failed = trace


def last_failed() -> Trace | None:
    """The partial trace of the last run whose model raised, or ``None``."""
    return _last_failed

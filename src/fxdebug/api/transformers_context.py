"""``model_addition_debugger_context``: the drop-in for the context manager of transformers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import nn

from fxdebug.api.run_model import settings_of
from fxdebug.capture.runs.build_trace import Options
from fxdebug.capture.runs.every_forward import EveryForward
from fxdebug.capture.torch_state.grad_mode import no_gradients
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.publish_run import publish
from fxdebug.store.rank_folders import rank_and_size
from fxdebug.store.staging_folder import StagingFolder
from fxdebug.store.tensors.live_data import LiveData
from fxdebug.store.tensors.one_file_each import OneFileEach
from fxdebug.store.trace_json.journal import Journal
from fxdebug.store.transformers.tree_files import write_drop_in_files


@contextlib.contextmanager
def model_addition_debugger_context(
    model: nn.Module,
    debug_path: str | os.PathLike[str] | None = None,
    do_prune_layers: bool = True,
    use_repr: bool = True,
) -> Iterator[nn.Module]:
    """Trace every forward in the block into the files of transformers: a drop-in for its context manager.

    Writes ``{Model}_debug_tree_FULL_TENSORS.json`` and ``…_SUMMARY.json`` to ``debug_path`` (the working
    directory by default), with ``use_repr=False`` also each tensor as safetensors. Enforces
    ``torch.no_grad()``. Under ``torch.distributed`` only rank 0 records. The files without a number are
    those of the last forward; earlier ones have a number (``…_SUMMARY.1.json``), and so have those of another model
    of the same class. A forward that raises leaves a partial tree. Raises ``SaveError`` (a ``ValueError``)
    when the folder cannot be written.
    """
    rank = rank_and_size()
    if rank and rank[0] != 0:
        with no_gradients():  # as on rank 0: the collectives of a forward can depend on it
            yield model
        return
    target = Path(debug_path or ".").absolute()
    writer = _StandardWriter(model, target, do_prune_layers, use_repr)
    settings = settings_of(values="repr" if use_repr else "tensors", prune=do_prune_layers)
    recording = EveryForward(model, writer.begin, writer.done, **settings)
    try:
        with recording, no_gradients():
            yield model
    finally:
        writer.close()
    for error in recording.errors:  # raised when the block ends, not inside the user's forward
        raise error if isinstance(error, SaveError) else SaveError(f"cannot write to {target}: {error}") from error


class _StandardWriter:
    """Write the files of transformers for each forward of one context."""

    def __init__(self, model: nn.Module, target: Path, prune: bool, use_repr: bool) -> None:
        self._model, self._target, self._prune, self._use_repr = model, target, prune, use_repr
        self.closed = False
        # made now, so that a folder that cannot be written raises before the run
        self._spare: StagingFolder | None = StagingFolder(target)
        self._runs: dict[int, tuple[LiveData, OneFileEach | None, list[Journal]]] = {}

    def begin(self) -> Options:
        staging, self._spare = self._spare or StagingFolder(self._target), None
        files = None if self._use_repr else OneFileEach(staging.path)
        run_data = LiveData(staging, text=self._use_repr, tensors=files)
        journals: list[Journal] = []

        def watching(name: str, values: list[Value]) -> tuple[Journal, ...]:
            try:
                journals.append(Journal(staging.path, name, values))
            except SaveError:  # nothing is recorded, so that `done` is never called
                del self._runs[id(options)]
                staging.close()
                raise
            return tuple(journals)

        options = Options(
            keeper=run_data,
            keep_all=False,
            shown=run_data.printer.repr_of,
            no_grad=True,
            weights=False,
            value_listeners=watching,
        )
        self._runs[id(options)] = (run_data, files, journals)
        return options

    def done(self, trace: TraceData, options: Options) -> None:
        run_data, files, journals = self._runs.pop(id(options))
        try:
            if files is not None:
                files.finish()
            trace = replace(trace, data=run_data)
            work = run_data.staging.path
            names, links = write_drop_in_files(trace, work, prune=self._prune, files=files)
            beside = trace.root.method != "forward"  # calls outside any forward do not take the name of a forward
            publish(work, self._target, names, trace.model, self._model, links=links, by=self, beside=beside)
        finally:
            for journal in journals:
                journal.close()
            run_data.staging.close()

    def close(self) -> None:
        self.closed = True
        if self._spare is not None:
            self._spare.close()

"""The storage of one run: it takes the values while the model runs and writes the files afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from fxdebug.api.trace import Trace
from fxdebug.capture.runs.build_trace import Options
from fxdebug.capture.tensors.value_table import complete
from fxdebug.capture.torch_state.module_members import named_buffers_of, named_parameters_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import Note
from fxdebug.data.values import Keeping, Value
from fxdebug.errors import SaveError
from fxdebug.store.publish_run import next_shard, publish, publishing_to
from fxdebug.store.save_run import write_run
from fxdebug.store.staging_folder import StagingFolder
from fxdebug.store.tensors.live_data import LiveData
from fxdebug.store.tensors.saved_data import SavedData
from fxdebug.store.tensors.shards import ShardWriter
from fxdebug.store.tensors.weights_of_run import (
    MOST_BYTES,
    bytes_of_weights,
    digests_of_weights,
    weights_to_keep,
    write_weights,
)
from fxdebug.store.trace_json.journal import Journal
from fxdebug.store.trace_json.samples import Samples
from fxdebug.store.trace_json.trace_file import renamed_shard
from fxdebug.store.transformers.print_tensor import Printer


class RunStore:
    """The storage of one run: its staging folder, shards, journal and samples, as the options ask for them."""

    def __init__(self, folder: Path | None, values: Keeping, budget: int, *, weights: bool = False) -> None:
        self.folder = folder
        self._with_weights = weights and folder is not None and values == "tensors"
        # all files are written here; they move to the folder of the run, or live as long as the trace
        self.staging: StagingFolder | None = None
        self.shards: ShardWriter | None = None
        self.run_data: LiveData | None = None
        self.samples: Samples | None = None
        self._journal: Journal | None = None
        if folder is not None or values != "stats":
            try:
                self._keep(folder, values, budget)
            except BaseException as error:
                self.close()
                if isinstance(error, OSError) and not isinstance(error, SaveError):
                    raise SaveError(f"cannot save to {folder}: {error.strerror or error}") from error
                raise
        # the text of objects does not depend on what is kept of tensors: the standard tree always has it
        self._printer: Printer | None = None if self.run_data is None else self.run_data.printer
        self._values: Sequence[Value] = ()

    def _keep(self, folder: Path | None, values: Keeping, budget: int) -> None:
        if folder is not None or values == "tensors":
            self.staging = StagingFolder(folder)
        if values == "tensors" and self.staging is not None:
            self.shards = ShardWriter(self.staging.path, budget=budget, first=next_shard(folder))
            self.run_data = LiveData(self.staging, printed_stats=False, tensors=self.shards)
        elif values == "repr":
            self.run_data = LiveData(StagingFolder(), text=True)
        elif values == "samples":
            self.samples = Samples()

    def options(self, **further: Any) -> Options:
        """Return the options of a recording whose values go to this store; ``further`` are other fields."""
        keeper = self.run_data if self.samples is None else self.samples
        return Options(keeper=keeper, shown=self.shown, value_listeners=self.watching, **further)

    def shown(self, thing: Any) -> str:
        """Return the ``repr`` of an object, under the print options of the standard tree."""
        if self._printer is None:
            self._printer = Printer(120)
        if self.run_data is None and self._values:
            self._printer.begin()
        return self._printer.repr_of(thing)

    def watching(self, model: str, values: list[Value]) -> tuple[Journal, ...]:
        """Return listeners of the recording: the journal of a run that is saved."""
        self._values = values
        if self.folder is None or self.staging is None:
            return ()
        self._journal = Journal(self.staging.path, model, values)
        return (self._journal,)

    def finish(self, trace: Trace, model: Any, prune: bool, raised: BaseException | None) -> Trace:
        """Note in the trace, which no user has yet, where its values are stored; write the files of the run."""
        try:
            if self.shards is not None:
                trace = self._keep_weights(trace, model, self.shards)
                for number, (saved, digest) in self.shards.finish().items():
                    complete(trace.values[number], saved=saved, digest=digest)
            if self.run_data is not None or self.samples is not None:
                trace = replace(trace, data=self.samples if self.run_data is None else self.run_data)
            if self.folder is None or self.staging is None:
                return trace
            return self._publish(trace, self.folder, self.staging, model, prune)
        except SaveError as error:
            if raised is not None:  # the model's own exception is the one to raise
                raised.add_note(f"fxdebug: {error}")
                return trace
            error.trace = trace  # type: ignore[attr-defined]
            raise

    def _keep_weights(self, trace: Trace, model: Any, shards: ShardWriter) -> Trace:
        """Write the weights that the run read, once; of many bytes only their digests, with a note in the trace."""
        if not self._with_weights or not isinstance(model, nn.Module):
            return trace
        with untracked():
            pairs = weights_to_keep(trace, dict([*named_parameters_of(model), *named_buffers_of(model)]))
            size = bytes_of_weights(pairs)
            if size <= MOST_BYTES:
                write_weights(pairs, shards)
                return trace
            for value, digest in digests_of_weights(pairs):
                complete(value, digest=digest)
        what = f"the weights ({size / 1e9:.1f} GB) were not saved: compare takes them as weights_a or weights_b"
        return replace(trace, notes=(*trace.notes, Note(what)))

    def _publish(self, trace: Trace, folder: Path, staging: StagingFolder, model: Any, prune: bool) -> Trace:
        target = staging.target or folder
        with publishing_to(target):
            try:
                shards = self._settled(trace, target)
                rows = None if self._journal is None else self._journal.rows
                names = write_run(trace, staging.path, prune=prune, rows=rows)
            except OSError as error:
                raise SaveError(f"cannot write to {folder}: {error.strerror or error}") from error
            publish(staging.path, target, [*shards, *names], "trace", model)
        printed = None if self.run_data is None else self.run_data.printed_stats
        data = trace.data if self.shards is None and trace.data is not None else SavedData(target, printed)
        return replace(trace, data=data, folder=folder)

    def _settled(self, trace: Trace, folder: Path) -> list[str]:
        """Return the names of the shards, after renaming all if another run has taken one of their names meanwhile."""
        files: list[Path] = [] if self.shards is None else self.shards.files
        if not any((folder / file.name).exists() for file in files):
            return [file.name for file in files]
        first = next_shard(folder) + len(files)  # beyond their own numbers too, so that no renaming overwrites one
        names = {file.name: f"tensors-{first + i:04d}.safetensors" for i, file in enumerate(files)}
        for file in files:
            file.rename(file.with_name(names[file.name]))
        for value in trace.values:
            complete(value, saved=renamed_shard(value.saved, names))
        return list(names.values())

    def close(self) -> None:
        """Remove everything from the folder but the published files."""
        if self.shards is not None:
            self.shards.stop()
        if self._journal is not None:
            self._journal.close()
        if self.staging is not None and self.folder is not None:
            self.staging.close()

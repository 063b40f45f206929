"""The store of one run: where its values go while it runs, and its files afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fxdebug.api.trace import Trace
from fxdebug.capture.tensors.value_table import complete
from fxdebug.data.values import Keeping, Value
from fxdebug.errors import SaveError
from fxdebug.store.run_files import write_run
from fxdebug.store.run_folder import StagingFolder, next_shard, publish, publishing
from fxdebug.store.tensors.keep import RunData
from fxdebug.store.tensors.saved_values import Saved
from fxdebug.store.tensors.shards import Shards
from fxdebug.store.trace_json.journal import Journal
from fxdebug.store.trace_json.samples import Samples
from fxdebug.store.trace_json.trace_file import moved
from fxdebug.store.transformers.print_tensor import Printer


class RunStore:
    """One recording's store: where its values go while it runs, and its files afterwards."""

    def __init__(self, folder: Path | None, values: Keeping, budget: int) -> None:
        self.folder = folder
        # where the run is written: it becomes the folder, or lives as long as the trace
        self.place: StagingFolder | None = None
        self.shards: Shards | None = None
        self.kept: RunData | None = None
        self.samples: Samples | None = None
        self._journal: Journal | None = None
        if folder is not None or values != "stats":
            try:
                self._keep(folder, values, budget)
            except BaseException:
                self.close()
                raise
        # objects are shown alike whatever is kept of tensors: the standard tree has their text in any case
        self._printer: Printer | None = None if self.kept is None else self.kept.printer
        self._values: Sequence[Value] = ()

    def _keep(self, folder: Path | None, values: Keeping, budget: int) -> None:
        if folder is not None or values == "tensors":
            self.place = StagingFolder(folder)
        if values == "tensors" and self.place is not None:
            self.shards = Shards(self.place.path, budget=budget, first=next_shard(folder))
            self.kept = RunData(self.place, words=False, bodies=self.shards)
        elif values == "repr":
            self.kept = RunData(StagingFolder(), text=True)
        elif values == "samples":
            self.samples = Samples()

    def shown(self, thing: Any) -> str:
        """The ``repr`` of an object, under the print options its text is wanted in."""
        if self._printer is None:
            self._printer = Printer(120)
        if self.kept is None and self._values:
            self._printer.begin()
        return self._printer.shown(thing)

    def watching(self, model: str, values: list[Value]) -> tuple[Journal, ...]:
        """Listeners that need the recording itself: the journal of a run that is saved."""
        self._values = values
        if self.folder is None or self.place is None:
            return ()
        self._journal = Journal(self.place.path, model, values)
        return (self._journal,)

    def finish(self, trace: Trace, model: Any, prune: bool, raised: BaseException | None) -> Trace:
        """Complete the trace, which nobody has yet, with where its values lie, and write its files."""
        try:
            if self.shards is not None:
                for number, (saved, digest) in self.shards.finish().items():
                    complete(trace.values[number], saved=saved, digest=digest)
            if self.kept is not None or self.samples is not None:
                trace = replace(trace, data=self.samples if self.kept is None else self.kept)
            if self.folder is None or self.place is None:
                return trace
            return self._publish(trace, self.folder, self.place, model, prune)
        except SaveError as error:
            if raised is not None:  # the model's own exception is the one to be told
                raised.add_note(f"fxdebug: {error}")
                return trace
            error.trace = trace  # type: ignore[attr-defined]
            raise

    def _publish(self, trace: Trace, folder: Path, place: StagingFolder, model: Any, prune: bool) -> Trace:
        target = place.target or folder
        with publishing:
            try:
                shards = self._settled(trace, target)
                written = None if self._journal is None else self._journal.rows
                names = write_run(trace, place.path, prune=prune, written=written)
            except OSError as error:
                raise SaveError(f"cannot write to {folder}: {error.strerror or error}") from error
            publish(place.path, target, [*shards, *names], "trace", model)
        words = None if self.kept is None else self.kept.words
        data = trace.data if self.shards is None and trace.data is not None else Saved(target, words)
        return replace(trace, data=data, folder=folder)

    def _settled(self, trace: Trace, folder: Path) -> list[str]:
        """The names of the shards, other ones than they were written under where another run took those meanwhile."""
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

"""Effects of a forward outside its model happen once: files, threads, output, queues, caches."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import fxdebug
from support.reasons import reason_of
from support.watched import VERIFIED, Layer, saw

COUNT = 0


@functools.lru_cache
def mask(size: int) -> torch.Tensor:
    return torch.ones(size, 1)


@functools.lru_cache
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_an_lru_cache_keeps_no_result_of_placeholders() -> None:
    class Cached(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * mask(x.shape[0])

    assert saw(Cached, before=mask.cache_clear, outside=lambda model: mask.cache_info()) == VERIFIED
    status, words, _ = saw(Cached, before=lambda: mask(3), outside=lambda model: mask.cache_info().currsize)
    assert (status, words) == ("recorded", "run again, it calls ones where mul ran")


def test_an_lru_cache_with_a_tensor_as_its_key_keeps_the_tensor_of_the_run() -> None:
    class Cached(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubled(self.l(x))

    assert saw(Cached, before=doubled.cache_clear, outside=lambda model: doubled.cache_info()) == VERIFIED
    doubled.cache_clear()


@pytest.mark.parametrize(
    "make", [lambda: itertools.count(1), lambda: iter([1, 2, 3, 4]), lambda: (i for i in range(1, 9))],
    ids=["count", "list iterator", "generator"],
)  # fmt: skip
def test_a_body_takes_from_an_iterator_once(make: Callable[[], Iterator[int]]) -> None:
    class Takes(Layer):
        def setup(self) -> None:
            self.numbers = make()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * next(self.numbers)

    status, words, line = saw(Takes)
    assert (status, words) == ("recorded", "it takes from an iterator that the program holds")
    assert line == "return self.l(x) * next(self.numbers)"
    model = Takes()
    assert fxdebug.fx_debug(model, torch.ones(3, 8)).root.status == "recorded"
    assert next(model.numbers) == 2


def test_a_body_takes_from_a_queue_once() -> None:
    class Queues(Layer):
        def setup(self) -> None:
            self.queue: queue.Queue[int] = queue.Queue()
            self.queue.put(5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = self.queue.get_nowait()
            return self.l(x) * n

    assert saw(Queues, outside=lambda model: model.queue.qsize())[:2] == (
        "recorded",
        "it takes something from a queue",
    )


def test_prints_warnings_and_log_records_appear_once(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Talks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("forward")
            sys.stdout.write("written\n")
            print("to stderr", file=sys.stderr)
            os.write(1, b"by the system\n")
            warnings.warn("careful", stacklevel=1)
            logging.getLogger("talks").warning("logged")
            return self.l(x)

    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        trace = fxdebug.fx_debug(Talks(), torch.ones(3, 8))
        assert trace.root.status == "recorded"
    assert reason_of(trace.root) == ("it writes to a file (os.write)", 'os.write(1, b"by the system\\n")')
    out, err = capfd.readouterr()
    assert (out, err) == ("forward\nwritten\nby the system\n", "to stderr\n")
    assert [str(w.message) for w in caught] == ["careful"]
    assert [record.message for record in caplog.records] == ["logged"]


def test_a_forward_that_prints_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    class Talks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("shape", x.shape)
            return self.l(x)

    trace = fxdebug.fx_debug(Talks(), torch.ones(3, 8))
    assert trace.root.status == "verified"
    assert capsys.readouterr().out == "shape torch.Size([3, 8])\n"


class Sink:
    """Keeps a stream, as handlers of loggers do."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_forward_that_writes_to_a_stream_somebody_keeps_is_verified(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = Sink(getattr(sys, name))

    class Writes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sink.stream.write("seen\n")
            return self.l(x)

    trace = fxdebug.fx_debug(Writes(), torch.ones(3, 8))
    assert trace.root.status == "verified"
    captured = capsys.readouterr()
    assert (captured.out, captured.err)[name == "stderr"] == "seen\n"


def test_a_file_is_written_once(tmp_path: Any) -> None:
    path = tmp_path / "log.txt"

    class Writes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            with open(path, "a") as file:
                file.write("once\n")
            return y

    reason = ("recorded", "it writes to a file", 'with open(path, "a") as file:')
    assert saw(Writes, before=lambda: path.unlink(missing_ok=True), outside=lambda model: path.read_text()) == reason


def test_a_file_that_was_opened_before_is_written_to_once(tmp_path: Any) -> None:
    path = tmp_path / "log.txt"

    class Writes(Layer):
        def setup(self) -> None:
            self.file = path.open("w", encoding="utf-8")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            self.file.write("once\n")
            self.file.flush()
            return y

    reason = ("recorded", "it uses a file that the program holds open", 'self.file.write("once\\n")')
    assert saw(Writes, outside=lambda model: path.read_text()) == reason


@pytest.mark.parametrize("what", ["mkdir", "remove", "system", "Path.write_text"])
def test_files_and_processes_are_changed_once(what: str, tmp_path: Any) -> None:
    (tmp_path / "there").write_text("x")
    acts: dict[str, Callable[[], Any]] = {
        "mkdir": lambda: os.mkdir(tmp_path / f"made{len(os.listdir(tmp_path))}"),
        "remove": lambda: os.remove(tmp_path / sorted(os.listdir(tmp_path))[0]),
        "system": lambda: os.system(f"echo once >> {tmp_path}/system.txt"),
        "Path.write_text": lambda: (tmp_path / f"{len(os.listdir(tmp_path))}.txt").write_text("x"),
    }

    class Acts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            acts[what]()
            return y

    before = sorted(os.listdir(tmp_path))
    trace = fxdebug.fx_debug(Acts(), torch.ones(3, 8))
    after = sorted(os.listdir(tmp_path))
    assert after != before
    assert trace.root.status == "recorded"
    assert trace.root.reason
    assert sorted(os.listdir(tmp_path)) == after
    if what == "system":
        assert (tmp_path / "system.txt").read_text() == "once\n"


def test_environment_variables_are_as_the_run_left_them() -> None:
    class Sets(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            os.environ["FXDEBUG_TEST"] = str(int(os.environ.get("FXDEBUG_TEST", "0")) + 1)
            return self.l(x)

    try:
        reset = functools.partial(os.environ.pop, "FXDEBUG_TEST", None)
        assert saw(Sets, before=reset, outside=lambda model: os.environ["FXDEBUG_TEST"]) == VERIFIED
    finally:
        os.environ.pop("FXDEBUG_TEST", None)


def test_a_thread_is_started_once() -> None:
    started: list[str] = []

    class Starts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            thread = threading.Thread(target=started.append, args=("ran",))
            thread.start()
            thread.join()
            return y

    reason = ("recorded", "it starts threads", "")
    assert saw(Starts, before=started.clear, outside=lambda model: list(started)) == reason


def test_a_library_is_imported_completely_even_if_its_import_is_refused_an_effect(tmp_path: Any) -> None:
    """Python keeps modules that a library imported before it failed: the program could never import it again."""
    (tmp_path / "needs_a_folder.py").write_text("import os\nos.makedirs(os.path.dirname(__file__) + '/made')\n")

    class Imports(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if COUNT:  # in the second run only
                import needs_a_folder  # type: ignore[import-not-found] # noqa: F401
            return self.l(x)

    sys.path.insert(0, str(tmp_path))
    try:
        trace = fxdebug.fx_debug(Imports(), torch.ones(3, 8))
        globals()["COUNT"] = 1
        assert trace.root.status == "verified"
        assert "needs_a_folder" in sys.modules
        assert (tmp_path / "made").is_dir()
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("needs_a_folder", None)
        globals()["COUNT"] = 0


def test_a_sleep_happens_once() -> None:
    class Sleeps(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.3)
            return self.l(x)

    trace = fxdebug.fx_debug(Sleeps(), torch.ones(3, 8))
    began = time.perf_counter()
    assert trace.root.status == "verified"
    assert time.perf_counter() - began < 0.25


def test_a_callback_of_the_program_is_called_once() -> None:
    class Meter:
        def __init__(self) -> None:
            self.history: list[float] = []

        def update(self, value: float) -> None:
            self.history.append(value)

    class Measured(Layer):
        def setup(self) -> None:
            self.meter = Meter()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            self.meter.update(float(y.mean()))
            return y

    assert saw(Measured, outside=lambda model: list(model.meter.history))[0] == "verified"


def test_a_body_that_handles_an_exception_of_its_own_has_a_graph() -> None:
    class Handles(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.l(x.view(5, 5))
            except RuntimeError:
                return self.l(x)

    assert saw(Handles)[0] in ("verified", "recorded")


def test_a_bare_except_in_a_body_cannot_hide_that_its_trace_has_ended() -> None:
    class Hides(Layer):
        def setup(self) -> None:
            self.numbers = iter(range(1, 9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                n = next(self.numbers)
            except BaseException:
                n = 0
            return self.l(x) * n

    assert saw(Hides)[0] == "recorded"

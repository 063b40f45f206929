"""The thread that writes: errors."""

from __future__ import annotations

from fxdebug.store.tensors.write_thread import WriteThread


def test_after_an_error_nothing_more_is_written_and_no_caller_blocks() -> None:
    done: list[int] = []

    def fails() -> None:
        raise OSError(28, "No space left on device")

    writer = WriteThread(budget=10)
    writer.submit(4, done.append, 1)
    writer.submit(8, fails)  # 12 bytes wait, and nobody releases any
    writer.submit(8, done.append, 2)
    writer.finish()
    assert done == [1]
    assert isinstance(writer.error, OSError)

"""A server of runs that runs in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fxdebug.features.serve.server import Server


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a folder at a free port for the block."""
    with Server(folder, 0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()

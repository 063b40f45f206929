"""State that torch keeps per thread, process or loss: read it, and hide our own operations from it."""

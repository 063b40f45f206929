"""State that torch keeps per thread or process: read it, and hide our own operations from it."""

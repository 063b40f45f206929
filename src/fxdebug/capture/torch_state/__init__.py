"""State that torch keeps per thread or process: read it, and run our own operations hidden from it."""

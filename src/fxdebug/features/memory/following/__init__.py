"""Follow the memory of a run, step by step: every storage, what keeps it, and the pieces of the allocator."""

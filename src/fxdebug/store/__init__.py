"""What we write and read back: the standard tree, ``trace.json``, tensors, printed text."""

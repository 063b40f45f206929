"""A run in a folder, written and read back: ``trace.json``, tensors, and transformers' debug tree."""

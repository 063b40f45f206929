"""transformers' debug tree (``…_FULL_TENSORS.json``, ``…_SUMMARY.json``), written byte for byte."""

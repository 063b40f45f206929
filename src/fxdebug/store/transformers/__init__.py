"""transformers' debug tree (``…_FULL_TENSORS.json``, ``…_SUMMARY.json``), written and read back, byte for byte."""

"""The file ``trace.json`` and its relatives: the journal of an unfinished run, samples of values."""

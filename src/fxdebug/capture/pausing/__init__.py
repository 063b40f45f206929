"""Run a model step by step, and with values changed; the thread, the stops and the edits of such a run."""

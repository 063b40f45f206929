"""The graphs of a run, made when asked for, and verified graphs run on other inputs (``call.fx``)."""

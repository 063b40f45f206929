"""The cost of a run: floating point operations, time, memory, parameters."""

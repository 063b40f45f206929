"""The recorder: calls enter and leave, in any thread; their records make the trace."""

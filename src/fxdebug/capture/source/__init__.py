"""The user's source: the line that asked for an operation, its text, tracebacks without our frames."""

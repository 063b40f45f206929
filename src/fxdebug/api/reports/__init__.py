"""Functions that answer with a report, and the report itself."""

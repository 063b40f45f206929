"""`trace.json`, the journal and golden files."""

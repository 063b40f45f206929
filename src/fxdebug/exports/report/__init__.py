"""A report as text, CSV, JSON and HTML."""

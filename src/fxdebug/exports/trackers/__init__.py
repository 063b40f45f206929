"""Runs and reports logged to programs that track experiments."""

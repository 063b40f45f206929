"""Runs in which something is changed, and one that is paused: ``edit``, ``replay``, ``paused_run``."""

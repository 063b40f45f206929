"""Runs in time, for programs that draw timelines."""

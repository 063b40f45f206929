"""Trials: what a change of settings brings, measured against a control, and the verdict on it."""

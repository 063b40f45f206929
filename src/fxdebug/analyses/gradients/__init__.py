"""Gradients of a step and of a history of steps: sizes, where they vanish or explode, clipping."""

"""Gradients of one step: the run that follows them, and the rules that judge them."""

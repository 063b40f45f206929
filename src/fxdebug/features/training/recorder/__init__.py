"""A training loop: hold what each step began with, and measure some of the steps."""

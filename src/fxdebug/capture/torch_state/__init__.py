"""What torch keeps per thread or process: read it, hide from it."""

"""Other ways to compute an operation, which people write by mistake: each from what the operation was given."""

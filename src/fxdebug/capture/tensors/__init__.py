"""Which tensors are one value, what each is, and its numbers."""

"""The loss, as autograd's graph tells: its function, its targets, its terms, and what they reach."""

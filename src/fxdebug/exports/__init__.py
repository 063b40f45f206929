"""One-way: a trace in the form that other programs, and eyes, take."""

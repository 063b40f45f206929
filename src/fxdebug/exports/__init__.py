"""A trace or a comparison written for other programs, for reading and for notebooks; nothing here is read back."""

"""A trace or a comparison written for other programs and for reading; nothing here is read back."""

"""A comparison on a screen, as a picture, as a table."""

"""Models of recorded runs, run again with what they were given."""

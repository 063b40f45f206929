"""The commands of the console, by what they are for: move, stop, look, search, help."""

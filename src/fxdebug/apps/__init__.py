"""The programs of the core: the command line."""

"""The programs: the command line and the pytest plugin."""

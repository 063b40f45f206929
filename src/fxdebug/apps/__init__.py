"""For people: the command line, consoles, pages, the pytest plugin."""

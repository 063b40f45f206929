"""The lines of a session, from a terminal with Tab and history, a script, a pipe."""

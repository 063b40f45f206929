"""`fxdebug serve`: the runs of a folder in the browser, also while they are written."""

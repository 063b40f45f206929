"""Questions about a model besides its record: a folder for each, with all that answers it."""

"""Parts of commands: the model or the run that options name, and a report in the form that they ask for."""

"""Whatever else looks on while a model runs: one question, one file."""

"""What differs in the inputs of two runs, where, and what made it so."""

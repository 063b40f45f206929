"""Try a change of a model's settings on a copy: knobs, and runs in pairs with and without each."""

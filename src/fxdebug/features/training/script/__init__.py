"""Watch a script as it is: the model and the optimizers that it makes, found when an optimizer makes its first step."""

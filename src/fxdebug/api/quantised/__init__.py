"""Compare a quantised model with its original: run it again with weights of the original put back."""

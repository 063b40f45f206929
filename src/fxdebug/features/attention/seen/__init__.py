"""The attentions of a run as they are seen: which ran, and the weights that they used."""

"""Weights that two models keep in different layouts, compared as a whole and slice by slice."""

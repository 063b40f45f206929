"""The record of one run: frozen, equal by value, standard library only."""

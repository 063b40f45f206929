"""What one run left behind: frozen, equal by value, standard library only."""

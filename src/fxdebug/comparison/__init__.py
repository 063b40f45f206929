"""Two traces: the steps of either side, distances, the verdict."""

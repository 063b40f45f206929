"""Ports with one fault at a random place: small models, faults in code and weights, healthy rewrites, a judge."""

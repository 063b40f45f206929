"""Hypotheses about a difference between two models, tried on these: is it that which makes them differ?"""

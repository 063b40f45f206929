"""Attentions and the tables of positions they use, compared however they are written."""

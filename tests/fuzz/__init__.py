"""Mutated messages for every port of a node: refused in so many words, and nothing else comes of them."""

"""Averages around any strategy of a Flower app."""

"""The smallest Flower app, with averages of its global models."""

"""Averages in the training loops of other libraries: Lightning, and the Trainer of Transformers."""

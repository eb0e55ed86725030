"""The ground: a model as a vector, pure random numbers, rows on disk, errors of settings."""

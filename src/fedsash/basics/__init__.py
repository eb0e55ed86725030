"""The basics: a model as a vector, pure random numbers, rows on disk, errors of settings."""

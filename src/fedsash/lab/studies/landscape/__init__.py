"""The loss on lines and planes through models, and on a surface around a model."""

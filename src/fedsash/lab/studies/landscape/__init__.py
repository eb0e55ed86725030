"""The loss between, around and beside models."""

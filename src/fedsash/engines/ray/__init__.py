"""Clients on the actors of a Ray cluster. Only `engine.py` may be imported without Ray."""

"""Schedulers over nodes in real time: a list of what happened, and runs that follow from it."""

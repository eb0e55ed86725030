"""This machine: files that are whole or absent, locks, subprocesses, paths, signals, names that are imported late."""

"""A campaign against fedsash: kills, damage, two processes on one folder, hostile files. `python -m torture --help`."""

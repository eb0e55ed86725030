"""fedsash beside other simulators: the same six works, each in a process of its own. See `__main__`."""

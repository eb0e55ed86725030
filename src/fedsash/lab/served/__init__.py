"""An experiment file served to the nodes of a Flower federation: its code in Flower's processes, and its progress."""

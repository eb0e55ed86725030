"""An experiment file served to the nodes of a Flower federation: what runs in Flower's processes, and what it tells."""

"""Clients on the nodes of a Flower federation: the server's half, the node's half, and the messages between them."""

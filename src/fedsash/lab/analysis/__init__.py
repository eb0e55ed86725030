"""What there is to see in trained models: landscapes, decompositions, similarities, windows."""

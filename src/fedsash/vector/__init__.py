"""A model as one flat vector: its layout and slices, pure random draws, exact sums, and files of vectors."""

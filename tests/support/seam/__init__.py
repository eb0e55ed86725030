"""Whether processes change files through the seam alone: what the system saw beside what `host.disk` was asked for."""

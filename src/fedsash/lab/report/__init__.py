"""Reports of runs: tables that compare them, and one HTML page with all their pictures."""

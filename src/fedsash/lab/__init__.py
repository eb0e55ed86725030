"""What surrounds training: files, runs, sweeps, studies, reproductions, pictures and the command line."""

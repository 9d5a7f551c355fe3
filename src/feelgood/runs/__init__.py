"""Output of runs: tables, manifest, lock, learning curves, progress."""

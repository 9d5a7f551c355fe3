"""What a run writes: tables, manifest, lock, learning curves, progress."""

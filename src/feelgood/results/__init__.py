"""What is on disk and how it looks: figures, tables, statistics. Knows nothing of training."""

"""The bsuite study."""

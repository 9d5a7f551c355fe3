"""The N-chain study."""

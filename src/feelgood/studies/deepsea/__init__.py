"""The DeepSea study."""

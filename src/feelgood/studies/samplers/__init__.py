"""The samplers study."""

"""Experiments as data, and what runs them."""

"""Randomised exploration in reinforcement learning by approximate posterior sampling."""

"""The regret study."""

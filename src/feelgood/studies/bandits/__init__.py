"""The bandits study."""

"""The Atari study."""

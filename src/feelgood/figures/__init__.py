"""Figures as records of plain numbers (charts), and Matplotlib's drawing of them."""

"""Figures of the pages: each function takes arrays or frames and draws a figure."""

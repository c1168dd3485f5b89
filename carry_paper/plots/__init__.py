"""Figures of the pages: arrays or frames in, a figure out."""

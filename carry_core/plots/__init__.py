"""What pages draw: figures that several share, and how a page shows them."""

from carry_core.plots.language import ORDINALS, separation_curves

__all__ = ["ORDINALS", "separation_curves"]

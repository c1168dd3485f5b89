"""What several pages draw, and what they put on themselves (`page`)."""

from carry_core.plots.language import ORDINALS, separation_curves
from carry_core.plots.style import CLASS_COLOURS, DIGIT_COLOURS

__all__ = ["CLASS_COLOURS", "DIGIT_COLOURS", "ORDINALS", "separation_curves"]

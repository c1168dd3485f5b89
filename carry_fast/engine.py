"""The engine of this package, as `carry_core.engine` finds it: the faster ways, where they apply.

All of them read weights instead of calling the model, so they serve plain models in float32 or
float64 (`plain`). Any other model, or a subclass of an intervention, gets the core's plain pass.
"""

from collections.abc import Sequence

from carry_core import engine
from carry_core.engine import Passes, Sources
from carry_core.hooks import Hook
from carry_core.interventions import AnyIntervention
from carry_core.model import Read, Transformer
from carry_fast.plain import is_plain, is_precise
from carry_fast.prefixes import SharedPrefix, is_own_kind


def passes(
    model: Transformer,
    interventions: Sequence[AnyIntervention],
    read: Read = None,
    watch: Hook | None = None,
    sources: Sources = (),
) -> Passes:
    """Return a function that gives the logits under each intervention (`prefixes`)."""
    if is_plain(model) and is_precise(model) and all(map(is_own_kind, interventions)):
        return SharedPrefix(model, interventions, read, watch, sources)
    return engine.passes(model, interventions, read, watch, sources)

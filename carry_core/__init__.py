"""The model, data, ablations and measurements of *Carrying over Algorithm in Transformers*.

The names below are the ones that notebooks use most. The modules that they come from have the rest.
"""

from carry_core.interventions import Ablation as Ablation
from carry_core.interventions import MeanAblation as MeanAblation
from carry_core.interventions import Patch as Patch
from carry_core.measure import accuracy as accuracy
from carry_core.measure import activation_patch as activation_patch
from carry_core.measure import activations as activations
from carry_core.measure import attention as attention
from carry_core.measure import sample as sample
from carry_core.model import ModelConfig as ModelConfig
from carry_core.model import Transformer as Transformer
from carry_core.runs import load as load
from carry_core.sums import all_sums as all_sums
from carry_core.sums import encode as encode

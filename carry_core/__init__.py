"""The model, data, ablations and measurements of *Carrying over Algorithm in Transformers*.

The names below are what notebooks use most. The rest is in the modules that they come from.
"""

from .interventions import Ablation as Ablation
from .interventions import MeanAblation as MeanAblation
from .interventions import Patch as Patch
from .measure import accuracy as accuracy
from .measure import activations as activations
from .measure import attention as attention
from .measure import sample as sample
from .model import ModelConfig as ModelConfig
from .model import Transformer as Transformer
from .runs import load as load
from .sums import all_sums as all_sums
from .sums import encode as encode

"""The model, data, ablations and measurements of *Carrying over Algorithm in Transformers*.

    sums            tokens: how a sum of two numbers is written
    carries         carry classes: at which positions a sum carries
    pairs           pairs of sums that differ in one variable
    model           the transformer, with its hook points
    hooks           what the model calls at a hook point, and the checks of it
    interventions   ablations and patches, as data
    engine          passes under interventions: plain ones, or those of a faster package
    measure         accuracy, attention, activations, patching, the decision head
    runs            files of trained runs
    bridges         the model in TransformerLens
    files, errors   the data folder and readers, bad input

The names below are the ones that notebooks use most.
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

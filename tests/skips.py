"""Tests that are skipped on some machines, each with its reason."""

import platform

import pytest
import torch

from carry_core.training import layers

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_one_dnn = pytest.mark.skipif(not layers.ONE_DNN, reason="this PyTorch has no oneDNN")
needs_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="PyTorch has oneDNN on other machines or not"
)

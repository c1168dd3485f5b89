"""Training: the stacked forward pass, its steps, the trainer, and checkpoints.

It needs one package more than the core: `pip install 'carry-core[train]'`.
"""

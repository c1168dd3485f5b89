"""Training: the stacked forward pass, fast CPU layers, dropout, the trainer, checkpoints, the benchmark."""

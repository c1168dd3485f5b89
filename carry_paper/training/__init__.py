"""Training: recipes, the stacked forward pass and its fast CPU layers, trainer, checkpoints, loop, benchmark."""

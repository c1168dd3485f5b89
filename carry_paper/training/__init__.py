"""Training: the stacked forward pass and its step in C++, trainer, checkpoints, loop, benchmark."""

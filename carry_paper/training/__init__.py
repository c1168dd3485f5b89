"""Training: the stacked forward pass, its step in C++, the trainer, checkpoints and benchmarks."""

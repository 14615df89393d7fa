"""The agent's side of kernels and their checkpoints."""

"""The agent's side of kernels, their checkpoints and the forkserver."""

"""Code in the processes of user code: the forkserver, kernels, scripts, displays."""

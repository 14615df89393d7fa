"""What runs in the process of user code: kernels, scripts, display."""

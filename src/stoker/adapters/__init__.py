"""Parts that the adapters for PyTorch, JAX and others share; none imports a framework."""

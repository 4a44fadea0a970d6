"""Processing modes, as the dispatcher applies them."""

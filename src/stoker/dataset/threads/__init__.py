"""Work on threads: the pool, calls in order, reading ahead, and how much of it AUTOTUNE uses."""

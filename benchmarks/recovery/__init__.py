"""Faults of running services, and what their trainers notice of them."""

"""Parts of `bench_modes.py`: what is measured of each mode, and the bounds."""

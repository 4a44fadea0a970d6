"""Processing modes; `mode.py` is their interface, `modes.py` finds that of a job."""

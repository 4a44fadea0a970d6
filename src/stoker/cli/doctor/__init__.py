"""``stoker doctor``: checks of a set-up from the machine where a trainer or a worker will run."""

"""Jobs and their iterations: opening, tasks, assignment of tasks, rounds, ends."""

"""The dispatcher: jobs, iterations, their tasks on workers, and the assignment of splits."""

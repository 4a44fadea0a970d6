"""What the dispatcher knows of workers, clients, supervisors and operators."""

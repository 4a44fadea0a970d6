"""DETERMINISTIC: clients ask every task for positions of the epoch."""

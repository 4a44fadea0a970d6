"""The worker: runs tasks and serves what they produce."""

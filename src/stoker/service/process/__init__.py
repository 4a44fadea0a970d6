"""Facts of one process and its host: addresses, logs, threads, descriptors, versions."""

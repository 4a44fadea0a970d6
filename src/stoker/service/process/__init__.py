"""Facts of a process and its host: addresses, logs, threads, descriptors, versions."""

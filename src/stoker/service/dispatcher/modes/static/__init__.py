"""Static sharding: each of the configured workers reads its shard."""

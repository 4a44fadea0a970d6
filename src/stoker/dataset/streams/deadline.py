"""Time limit for computing a chunk."""

CHUNK_SECONDS = 0.5e-3
"""A chunk is returned when computing it has taken this long: a fraction of the millisecond that
`Stream.next_chunk` allows, since one more element may take as long again."""

"""The entities of the journaled state, and the records that change entities."""

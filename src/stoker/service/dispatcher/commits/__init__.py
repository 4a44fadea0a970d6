"""Committing decisions: to the state and the journal, with the messages that wait for it."""

"""The journaled state: records are checked, applied, logged and kept in snapshots."""

"""DYNAMIC: the dispatcher assigns splits to tasks."""

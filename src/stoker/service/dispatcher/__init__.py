"""The dispatcher: who reads what, where it runs, and which splits go to whom."""

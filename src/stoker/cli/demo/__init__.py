"""`stoker demo`: what stoker is for, in two minutes on one machine."""

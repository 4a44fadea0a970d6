"""`stoker demo`: what stoker is for, in a minute on one machine."""

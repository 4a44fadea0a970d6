"""Names of further libraries for stoker, so that programs move by changing an import line.

`from stoker.compat import tf` stands for ``import tensorflow as tf`` in input pipelines.
"""

"""The formats of files: codecs that read records of one file, and the writer of TFRecord files."""

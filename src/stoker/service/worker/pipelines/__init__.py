"""Running pipelines of tasks: loading datasets, executing, failures, listing of splits."""

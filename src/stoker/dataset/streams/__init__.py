"""Open pipelines: the `Stream` interface and what implements it for many nodes."""

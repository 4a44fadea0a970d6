"""Parts of `bench_service.py`: elements, rows, servers, trainers, limits and the table."""

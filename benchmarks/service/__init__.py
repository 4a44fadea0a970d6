"""The rooms of `bench_service.py`: what moves, who serves, who reads, what is possible."""

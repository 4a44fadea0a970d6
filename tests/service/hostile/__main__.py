"""Send a dispatcher random messages: ``python -m tests.service.hostile --steps 300000``.

The first exception ends it; ``--seed`` repeats a run.
"""

import argparse

from tests.service.hostile.run import HostileRun

STEPS_PER_RUN = 20_000


def main() -> None:
    """Run as many dispatchers as the steps need."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + -(-arguments.steps // STEPS_PER_RUN)):
        print(f"seed {seed}:", end=" ", flush=True)
        run = HostileRun(seed)
        for _ in range(STEPS_PER_RUN):
            run.step()
        print(f"{run.accepted} of {STEPS_PER_RUN} steps accepted", flush=True)


if __name__ == "__main__":
    main()

"""The kinds of reads that are simulated, each with its scenarios and its invariants."""

from tests.simulation import invariants, rounds, scenario
from tests.simulation.cluster import Cluster
from tests.simulation.simulation import Family

READS = Family(scenario.draw, Cluster, invariants.violations)
ROUNDS = Family(rounds.draw_rounds, rounds.RoundsCluster, rounds.violations)

FAMILIES = {"reads": READS, "rounds": ROUNDS}
"""By the names of the command line."""

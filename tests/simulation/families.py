"""The kinds of reads that are simulated, each with its scenarios and its invariants."""

from tests.simulation import invariants, rounds, scenario
from tests.simulation.cluster import Cluster
from tests.simulation.positions import invariants as positions
from tests.simulation.positions.scenario import draw_positions
from tests.simulation.positions.training import TrainingCluster
from tests.simulation.simulation import Family

READS = Family(scenario.draw, Cluster, invariants.violations)
POSITIONS = Family(draw_positions, TrainingCluster, positions.violations)
ROUNDS = Family(rounds.draw_rounds, rounds.RoundsCluster, rounds.violations)

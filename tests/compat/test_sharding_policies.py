"""tf.data.experimental.service.ShardingPolicy, and that of `stoker.service` in its place."""

import pytest

import stoker
from stoker.compat import tf
from tests.serving import Service, read

TENSORFLOWS = tf.data.experimental.service


def test_sharding_policies_are_tensorflows():
    names = ["OFF", "DYNAMIC", "FILE", "DATA", "FILE_OR_DATA", "HINT"]
    found = [(policy.name, policy.value) for policy in TENSORFLOWS.ShardingPolicy]
    assert found == list(zip(names, range(6), strict=True))


@pytest.mark.parametrize("module", [TENSORFLOWS, stoker.service])
def test_each_module_accepts_the_policies_of_both(module):
    dataset = stoker.Dataset.range(10)
    with Service(2) as running:
        dataset_id = module.register_dataset(running.target, dataset)
        for policies in (TENSORFLOWS.ShardingPolicy, stoker.service.ShardingPolicy):
            policy = policies.DYNAMIC
            for distributed in (
                dataset.apply(module.distribute(policy, running.target)),
                dataset.distribute(running.target, processing_mode=policy),
                module.from_dataset_id(policy, running.target, dataset_id),
            ):
                assert sorted(read(distributed)) == list(range(10))

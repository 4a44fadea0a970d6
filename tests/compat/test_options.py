"""tf.data.Options: attributes, types, equality and merging, as in TensorFlow 2.21."""

import copy
import pickle

import pytest

import stoker
from stoker.compat import tf


def test_options_are_settable_attributes():
    options = tf.data.Options()
    options.deterministic = False
    options.autotune.enabled = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_optimization.map_parallelization = True
    options.threading.private_threadpool_size = 3
    assert (options.deterministic, options.experimental_slack) == (False, None)
    assert tf.data.Dataset.range(3).with_options(options).options() == stoker.Options(threads=3)


def test_unknown_option_is_an_error():
    with pytest.raises(AttributeError, match=r"tf\.data\.Options\.no_such"):
        tf.data.Options().no_such = 1
    with pytest.raises(AttributeError, match=r"tf\.data\.ThreadingOptions\.no_such"):
        tf.data.Options().threading.no_such  # noqa: B018 - the access is the test


def test_stoker_options_are_accepted():
    dataset = tf.data.Dataset.range(3).with_options(stoker.Options(seed=1))
    assert dataset.options().seed == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="`options`"):
        dataset.with_options({"seed": 1})  # type: ignore[arg-type]


def test_equal_options_are_equal():
    one, other = tf.data.Options(), tf.data.Options()
    assert one == other
    for options in (one, other):
        options.deterministic = False
        options.threading.private_threadpool_size = 2
        assert (one == other) is (options is other)
    assert one != tf.data.ThreadingOptions()
    assert one != 5


def test_default_option_equals_an_unset_one():
    distribute = tf.data.experimental.DistributeOptions()
    assert distribute.auto_shard_policy is tf.data.experimental.AutoShardPolicy.AUTO
    distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.AUTO
    assert distribute == tf.data.experimental.DistributeOptions()


def test_options_have_no_hash():
    with pytest.raises(TypeError, match="unhashable"):
        hash(tf.data.Options())


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_copied_options_are_equal(copied):
    options = tf.data.Options()
    options.autotune.cpu_budget = 3
    assert copied(options) == options


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        (None, "deterministic", 5),
        (None, "deterministic", None),
        (None, "experimental_deterministic", "a"),
        (None, "threading", 5),
        (None, "experimental_threading", 5),
        (None, "autotune", tf.data.ThreadingOptions()),
        (None, "experimental_slack", 1),
        (None, "experimental_external_state_policy", 1),
        (None, "dataset_name", 5),
        ("threading", "private_threadpool_size", 1.5),
        ("autotune", "enabled", 1),
        ("autotune", "autotune_algorithm", 1),
        ("experimental_distribute", "auto_shard_policy", 1),
        ("experimental_optimization", "map_fusion", "yes"),
        ("experimental_service", "pinned", 1),
    ],
)
def test_option_of_another_type_is_a_type_error(group, name, value):
    options = tf.data.Options()
    target = options if group is None else getattr(options, group)
    renamed = name.replace("experimental_deterministic", "deterministic")
    renamed = renamed.replace("experimental_threading", "threading")
    with pytest.raises(TypeError, match=f'Property "{renamed}" must be of type <.*>, got: '):
        setattr(target, name, value)


def test_deprecated_names_are_the_current_ones():
    options = tf.data.Options()
    options.experimental_deterministic = False
    options.experimental_threading.private_threadpool_size = 4
    assert options.deterministic is False
    assert options.threading.private_threadpool_size == 4
    assert options.experimental_deterministic is False


def test_merge_prefers_the_later_options():
    one, other = tf.data.Options(), tf.data.Options()
    one.deterministic = True
    one.threading.private_threadpool_size = 2
    one.threading.max_intra_op_parallelism = 1
    other.deterministic = False
    other.threading.private_threadpool_size = 3
    merged = one.merge(other)
    assert merged.deterministic is False
    assert merged.threading.private_threadpool_size == 3
    assert merged.threading.max_intra_op_parallelism == 1
    assert one.threading.private_threadpool_size == 2
    with pytest.raises(TypeError, match=r"Could not merge incompatible options .*\.$"):
        one.merge(5)  # type: ignore[arg-type]

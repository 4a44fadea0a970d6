"""Variables of stoker, of Kubernetes, and with typing errors."""

from stoker.cli.options.sources import stoker_variables, unknown_variables

KNOWN = ["STOKER_PORT", "STOKER_WORKER_TIMEOUT_MS"]


def test_an_unknown_variable_is_named_with_a_near_one():
    environ = {"STOKER_WORKR_TIMEOUT_MS": "3", "STOKER_XYZ": "1", "HOME": "/", "STOKER_PORT": "1"}
    near, other = unknown_variables({**environ, "STOKER_CONFIG": "stoker.toml"}, KNOWN)
    assert near == (
        "the environment variable STOKER_WORKR_TIMEOUT_MS has no effect: it is no option of "
        "stoker; did you mean STOKER_WORKER_TIMEOUT_MS?"
    )
    assert other == "the environment variable STOKER_XYZ has no effect: it is no option of stoker"


def test_variables_of_kubernetes_services_are_ignored():
    """Those of services named "stoker" and "stoker-dispatcher" in the namespace of a pod."""
    environ = {
        "STOKER_PORT": "tcp://10.0.0.1:5050",
        "STOKER_SERVICE_HOST": "10.0.0.1",
        "STOKER_SERVICE_PORT": "5050",
        "STOKER_SERVICE_PORT_GRPC": "5050",
        "STOKER_PORT_5050_TCP": "tcp://10.0.0.1:5050",
        "STOKER_PORT_5050_TCP_PROTO": "tcp",
        "STOKER_PORT_5050_TCP_ADDR": "10.0.0.1",
        "STOKER_DISPATCHER_PORT": "tcp://10.0.0.2:5050",
        "STOKER_DISPATCHER_SERVICE_HOST": "10.0.0.2",
    }
    assert stoker_variables(environ) == {}
    assert unknown_variables(environ, KNOWN) == []

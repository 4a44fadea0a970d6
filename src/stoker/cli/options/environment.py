"""Variables STOKER_* of the environment."""

import difflib
import re
from collections.abc import Collection, Mapping

PREFIX = "STOKER_"
CONFIG_VARIABLE = "STOKER_CONFIG"

_KUBERNETES = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://")


def stoker_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a user has set for stoker, without empty ones.

    A pod has variables of each service of its namespace: with a service named "stoker",
    ``STOKER_PORT=tcp://10.0.0.1:5050``. They are no options.
    """
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX)
        and value
        and not _KUBERNETES.search(name)
        and not (name.endswith("_PORT") and _KUBERNETES_PORT.match(value))
    }


def unknown_variables(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return a warning for each variable STOKER_* that no command reads."""
    unknown = sorted(set(stoker_variables(environ)) - {*known, CONFIG_VARIABLE})
    return [
        f"the environment variable {name} has no effect: it is no option of stoker"
        + did_you_mean(name, known)
        for name in unknown
    ]


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return "; did you mean ...?" with the known name nearest to `name`, if one is near."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""

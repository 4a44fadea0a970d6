"""Names of a package that are imported when first used."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


# `import stoker` loads no names, so that the completion of a `stoker` command takes 0.4 s of CPU
# time. (docs/decisions/098)
def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of `package`, whose names are in the modules of the same package.

    The command line imports `stoker` and parts of `stoker.service` for each completion, without
    NumPy and the servers.

    Args:
        package: name of the package.
        modules: for each name its module; a name that is itself a module has its own.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 - the function's name in the package
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        value = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__

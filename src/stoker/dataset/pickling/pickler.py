"""cloudpickle's Pickler, also for modules that are instances of a subclass of ModuleType."""

import importlib
import sys
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickle such modules by name, like all installed modules.

    cloudpickle adds each loaded submodule of a package whose name is among the names in a function,
    or in the class that is pickled with the function. So an attribute `classes` or `ops` and the
    global `torch` add `torch.classes` and `torch.ops`, which cloudpickle 3.1 cannot pickle.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType:
            name = obj.__name__
            if sys.modules.get(name) is obj:
                return importlib.import_module, (name,)
        return super().reducer_override(obj)

"""cloudpickle's Pickler, also for modules of other types, and with the file names of code."""

import importlib
import sys
from types import CodeType, ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

NO_FILE_NAME = "<dynamic-code>"
"""What cloudpickle 3.1.3 writes in place of the file name of code."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickle all installed modules by name, and code with its file name.

    A module may be an instance of a subclass of ModuleType. Tracebacks of a worker name the file of
    the user's function.

    cloudpickle adds each loaded submodule of a package whose name is among the names in a function,
    or in the class that is pickled with the function. So an attribute `classes` or `ops` and the
    global `torch` add `torch.classes` and `torch.ops`, which cloudpickle 3.1 cannot pickle.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType:
            name = obj.__name__
            if sys.modules.get(name) is obj:
                return importlib.import_module, (name,)
        if isinstance(obj, CodeType):
            make, values = self.dispatch_table[CodeType](obj)
            # Where the file name is among the values depends on the version of Python.
            return make, tuple(obj.co_filename if x == NO_FILE_NAME else x for x in values)
        return super().reducer_override(obj)

"""The layers, models and experiments of the book *Who Looks at Whom?*.

Every layer that reads a sequence takes ``(B, T, D)`` and returns ``(B, T, D)``. They differ in
one thing: what may position *i* look at, and who decides?

Each module belongs to the chapter that explains it. They are imported when they are first used,
so that ``import tutorial_lib`` stays light::

    import tutorial_lib

    net = tutorial_lib.dense.MLP([40, 100, 10])
"""

import importlib
import pkgutil
from types import ModuleType

__version__ = "0.1.0"

# Every module beside this file is an attribute; names with an underscore are ours alone.
_MODULES = tuple(
    sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
)


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])

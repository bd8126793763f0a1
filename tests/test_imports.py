"""Importing the package costs little and changes nothing."""

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tutorial_lib

ROOT = Path(__file__).parent.parent
FILES = [path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("tutorial_lib/**/*.py")]
NAMES = {".".join(path.parts).removesuffix(".__init__") for path in FILES}
MODULES = sorted(name for name in NAMES - {"tutorial_lib"} if "._" not in name)
OPTIONAL = (
    "IPython",
    "PIL",
    "babel",
    "ipywidgets",
    "matplotlib",
    "mlxtend",
    "mnist1d",
    "num2words",
    "pandas",
    "pygments",
    "sacrebleu",
    "safetensors",
    "scipy",
    "sklearn",
    "tiktoken",
    "tokenizers",
    "tqdm",
    "transformers",
)

# Runs before each program below: torch, NumPy and jaxtyping are there, and what else they bring;
# every optional package is missing; nothing may be written, and no host asked for anything.
GUARD = """
import importlib, os, random, sys
sys.path.insert(0, {root!r})

def forbid(event, arguments):
    if event.startswith("socket.") and event != "socket.__new__":
        raise SystemExit(f"the network was asked: {{event}} {{arguments}}")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        if arguments[0] != os.devnull:
            raise SystemExit(f"a file was written: {{arguments}}")

import torch, numpy, numpy.random, jaxtyping  # NumPy loads numpy.random when first asked
sys.addaudithook(forbid)
for name in [*sys.modules]:
    if name.partition(".")[0] in {optional!r}:
        del sys.modules[name]
sys.modules.update(dict.fromkeys({optional!r}))  # None: importing it is an ImportError
MODULES = {modules!r}
"""


def fresh(program: str, home: Path | str) -> str:
    """What ``program`` prints in a new interpreter without display, settings or a usable home."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")}
    done = subprocess.run(
        [
            sys.executable,
            "-B",
            "-W",
            "error",
            "-c",
            GUARD.format(root=str(ROOT), modules=MODULES, optional=OPTIONAL) + program,
        ],
        env=kept | {"HOME": str(home), "OMP_NUM_THREADS": "1"},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_importing_needs_and_brings_torch_numpy_and_jaxtyping_alone() -> None:
    # Not only the package: each of its modules. A home that cannot exist is out of reach.
    said = fresh(
        """
def names():
    return {name.partition(".")[0] for name in sys.modules}

before = names()
import tutorial_lib
for name in MODULES:
    importlib.import_module(name)
added = names() - before - set(sys.stdlib_module_names) - {"tutorial_lib"}
added -= {name for name in added if name.startswith("_sysconfigdata")}  # the standard library's
assert not added, added
""",
        os.devnull + "/none",
    )
    assert said == ""


def test_importing_the_package_itself_does_not_even_load_torch() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import tutorial_lib; print(*sys.modules)"
    )
    command = [sys.executable, "-I", "-c", program, str(ROOT)]
    loaded = subprocess.check_output(command, text=True).split()
    assert not {"torch", "numpy", "matplotlib", "IPython"} & set(loaded)


def test_importing_changes_no_random_state_and_no_setting() -> None:
    said = fresh(
        """
import warnings

def state():
    kind, keys, *rest = numpy.random.get_state()
    return (
        random.getstate(), kind, keys.tolist(), rest, torch.get_rng_state().tolist(),
        torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark, torch._tensor_str.PRINT_OPTS.precision,
        numpy.get_printoptions(), dict(os.environ), os.getcwd(), list(sys.path),
    )

before = state()
filters = list(warnings.filters)
import tutorial_lib
for name in MODULES:
    importlib.import_module(name)
assert state() == before
assert warnings.filters == filters
assert not torch.cuda.is_initialized()
""",
        os.devnull + "/none",
    )
    assert said == ""


def test_importing_writes_nothing_into_the_home_directory(tmp_path: Path) -> None:
    fresh("for name in MODULES: importlib.import_module(name)", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_module_can_be_the_first_one_imported() -> None:
    fresh(
        """
for name in MODULES:
    for loaded in [n for n in sys.modules if n.partition(".")[0] == "tutorial_lib"]:
        del sys.modules[loaded]
    importlib.import_module(name)
""",
        os.devnull + "/none",
    )


def test_every_module_on_disk_is_an_attribute_and_no_other() -> None:
    top = {name.partition(".")[2] for name in MODULES if name.count(".") == 1}
    assert set(tutorial_lib._MODULES) == top
    assert top <= set(dir(tutorial_lib))
    for name in top:
        assert getattr(tutorial_lib, name) is importlib.import_module(f"tutorial_lib.{name}")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tutorial_lib.nothing


def public(module: ModuleType) -> list[str]:
    """The functions and classes of ours that a reader finds in ``module``."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith("tutorial_lib")
    ]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring_with_an_example(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} does not say what it is for"
    for item in public(module):
        value = getattr(module, item)
        doc = value.__doc__
        assert doc, f"{name}.{item} has no docstring"
        if not (inspect.isclass(value) and issubclass(value, Exception)):
            assert ">>>" in doc, f"{name}.{item} has no example"

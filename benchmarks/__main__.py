"""``make bench``: every comparison in one run, as a table and as JSON.

Ours and the other implementation alternate within one run, so that a busy machine slows both.
Times are medians. A ratio is theirs over ours: above 1, ours is faster.
"""

import importlib
import json
import platform
import sys
from pathlib import Path

import torch

from tutorial_lib.runtime import device

PARTS = ("tokenizers", "layers")
OUT = Path("_build", "bench.json")


def show(row: dict) -> str:
    """One line of the table."""
    numbers = f"{1e3 * row['seconds']:10.1f}"
    numbers += f"{row['ratio']:8.2f}" if row.get("ratio") else " " * 8
    return f"{row['name']:<52}{numbers}  {row.get('other') or ''}{row.get('note', '')}"


def main(names: list[str]) -> None:
    found = []
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {device()}")
    for part in names or PARTS:
        print(f"\n{part:<52}{'ms':>10}{'ratio':>8}  other")
        for row in importlib.import_module(f"benchmarks.{part}").rows():
            print(show(row), flush=True)
            found.append(row)
    OUT.parent.mkdir(exist_ok=True)
    machine = {"torch": torch.__version__, "python": platform.python_version()}
    machine |= {"threads": torch.get_num_threads(), "device": str(device())}
    OUT.write_text(json.dumps({"machine": machine, "rows": found}, indent=1))
    print(f"\nwritten to {OUT}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""How much ``import tutorial_lib`` adds to ``import torch``: python benchmarks/import_time.py"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7
GOAL = 0.1  # seconds

# One fresh interpreter: torch first, so that the rest is what we add to it.
PROGRAM = """
import json, pkgutil, sys, time
sys.path.insert(0, sys.argv[1])
times = [time.perf_counter()]
import torch
times.append(time.perf_counter())
import tutorial_lib
times.append(time.perf_counter())
for module in pkgutil.walk_packages(tutorial_lib.__path__, "tutorial_lib."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
times.append(time.perf_counter())
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""


def main() -> None:
    command = [sys.executable, "-I", "-c", PROGRAM, str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)  # fills the byte-code caches
    runs = [json.loads(subprocess.check_output(command)) for _ in range(RUNS)]
    names = ("import torch", "+ import tutorial_lib", "+ all of its modules")
    print(f"median of {RUNS} fresh interpreters (lowest to highest)")
    for name, times in zip(names, zip(*runs, strict=True), strict=True):
        middle = statistics.median(times)
        print(f"{name:<22} {middle:7.4f} s  ({min(times):.4f} to {max(times):.4f})")
    added = statistics.median(sum(run[1:]) for run in runs)
    print(
        f"added in all: {added:.4f} s, {'within' if added < GOAL else 'OVER'} the goal of {GOAL} s"
    )


if __name__ == "__main__":
    main()

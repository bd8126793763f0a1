"""Device, seeds, versions."""

import random

import numpy as np
import pytest
import torch

from tutorial_lib import runtime


def test_device_is_the_accelerator_if_there_is_one(monkeypatch) -> None:
    monkeypatch.delenv(runtime.VARIABLE, raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert runtime.device() == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert runtime.device() == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert runtime.device() == torch.device("cuda")
    monkeypatch.setenv("LOCAL_RANK", "3")  # torchrun's fourth process
    assert runtime.device() == torch.device("cuda:3")


def test_variable_overrides_the_choice(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cpu", "cuda", "cuda:1"):
        monkeypatch.setenv(runtime.VARIABLE, f" {name} ")
        assert runtime.device() == torch.device(name)


@pytest.mark.parametrize("name", ["gpu", "cuda", "cuda:0", "tpu:1", "meta", "cuda:x"])
def test_unknown_or_absent_device_is_named(monkeypatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setenv(runtime.VARIABLE, name)
    with pytest.raises(ValueError, match=f"TUTORIAL_DEVICE must name .*cpu.*got '{name}'"):
        runtime.device()


def test_a_second_gpu_that_is_not_there(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv(runtime.VARIABLE, "cuda:1")
    with pytest.raises(ValueError, match=r"'cuda:1', but this machine has 1 of type cuda"):
        runtime.device()


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(()).item()  # noqa: NPY002


def test_one_seed_for_all_generators() -> None:
    runtime.seed_everything(11)
    first = draw()
    assert all(a != b for a, b in zip(first, draw(), strict=True))
    runtime.seed_everything(11)
    assert draw() == first
    runtime.seed_everything(12)
    assert all(a != b for a, b in zip(first, draw(), strict=True))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("seed", "error"), [(1.0, TypeError), (True, TypeError), (-1, ValueError), (2**32, ValueError)]
)
def test_bad_seed_is_named_and_seeds_nothing(seed: object, error: type[Exception]) -> None:
    runtime.seed_everything(5)
    wanted = draw()
    runtime.seed_everything(5)
    with pytest.raises(error, match="seed must be"):
        runtime.seed_everything(seed)
    assert draw() == wanted


def test_versions_stand_on_one_line(capsys) -> None:
    runtime.show_versions()
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    for part in (torch.__version__, np.__version__, str(runtime.device())):
        assert part in line

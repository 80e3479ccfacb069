"""The examples of the zoo run, in small."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    spec.loader.exec_module(module)
    module.main()


def test_generate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("generate", monkeypatch, "--message", "Hello", "--tokens", "4", "--layers", "1")
    assert "[4 tokens" in capsys.readouterr().err


def test_diffusion(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    small = ("--images", "128", "--base", "8", "--steps", "2", "--count", "1")
    run("diffusion", monkeypatch, "--epochs", "2", *small)
    assert "loss" in capsys.readouterr().out


def test_finetune_llama(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--letters", "3000", "--length", "32", "--width", "32", "--layers", "1")
    run("finetune_llama", monkeypatch, *small, "--epochs", "3", "--lora-epochs", "2")
    lines = [x for x in capsys.readouterr().out.splitlines() if "perplexity" in x and "->" in x]
    assert len(lines) == 2
    for line in lines:
        first, last = line.rpartition("perplexity ")[2].split(" -> ")
        assert float(last) < float(first)

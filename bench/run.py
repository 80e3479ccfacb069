"""Time meganeura and, where it is installed, PyTorch, in one run on one device.

python bench/run.py [--only convnet] [--json FILE] [--modes eager,compile,captured] [--dtype mixed_float16]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import workloads  # noqa: E402

import meganeura as mg  # noqa: E402


def _mebibytes(row: dict[str, float]) -> str:
    return f"{row['peak_bytes'] / 2**20:7.1f}" if "peak_bytes" in row else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated parts of workload names")
    parser.add_argument(
        "--modes", default="eager,captured", help="how PyTorch runs: eager, compile, captured"
    )
    parser.add_argument(
        "--calls", type=int, default=20, help="steps in each of five blocks, at least"
    )
    parser.add_argument(
        "--dtype", default="float32", choices=("float32", "mixed_float16"),
        help="the dtype policy; PyTorch runs under autocast where it is mixed",
    )  # fmt: skip
    parser.add_argument("--json", help="write the figures to this file as well")
    arguments = parser.parse_args()
    mg.config.set_dtype_policy(arguments.dtype)
    wanted = [n for n in workloads.WORKLOADS if any(p in n for p in arguments.only.split(","))]
    figures: dict[str, dict[str, dict[str, float]]] = {}
    device = mg.backend.describe()
    print(
        f"meganeura {mg.__version__} on {device}, {arguments.dtype}; Python {platform.python_version()}"
    )
    torch_side = None
    if importlib.util.find_spec("torch"):
        import torch
        import torch_side

        where = torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
        print(f"PyTorch {torch.__version__} on {where}, {arguments.dtype}, TF32 off")
    print(
        f"{'workload':22s} {'who':12s} {'train ms':>9s} {'infer ms':>9s} {'ratio':>12s} {'dispatches':>11s} {'MiB':>7s}"
    )
    for name in wanted:
        rows = figures[name] = {"meganeura": workloads.measure(name, arguments.calls)}
        ours = rows["meganeura"]
        counts = f"{ours['train_dispatches']:.0f}/{ours['infer_dispatches']:.0f}"
        print(
            f"{name:22s} {'meganeura':12s} {ours['train']:9.3f} {ours['infer']:9.3f} {'':12s} "
            f"{counts:>11s} {_mebibytes(ours)}",
            flush=True,
        )
        if torch_side is None:
            continue
        for mode in arguments.modes.split(","):
            if mode == "captured" and not torch.cuda.is_available():
                continue
            try:
                theirs = rows[f"torch {mode}"] = torch_side.measure(
                    name, mode, arguments.calls, half=arguments.dtype == "mixed_float16"
                )
            except Exception as error:  # one mode that fails must not hide the others
                print(f"{name:22s} torch {mode}: {str(error)[:120]}")
                continue
            ratio = f"{ours['train'] / theirs['train']:.2f}/{ours['infer'] / theirs['infer']:.2f}"
            print(
                f"{'':22s} {'torch ' + mode:12s} {theirs['train']:9.3f} {theirs['infer']:9.3f} "
                f"{ratio:>12s} {'':11s} {_mebibytes(theirs)}",
                flush=True,
            )
    print("MiB: the most memory of a training step, from nothing to the last step")
    print("ratio: our time divided by theirs, train/infer; below 1 is faster")
    if arguments.json:
        command = " ".join(["python", *sys.argv])
        Path(arguments.json).write_text(
            json.dumps({"device": device, "command": command, "figures": figures}, indent=1)
        )


if __name__ == "__main__":
    main()

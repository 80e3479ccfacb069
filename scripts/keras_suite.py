"""Run Keras's own tests, read from the installed `keras` package, against meganeura.

    python scripts/keras_suite.py [--area losses,metrics] [--list failed] [--write]
    python scripts/keras_suite.py --baseline

Imports are rewritten to meganeura's public names in memory. tests/keras_suite/AREA.txt names the cases that are
expected to fail, each with its reason; a case that fails and is not named there, or that is named there and
passes, makes this command fail.

`--baseline` runs the same cases against real Keras (on PyTorch) confined to its own public names, and writes those
that pass to tests/keras_suite/keras/AREA.txt, a test class a line. Other runs compare themselves with these: `--list
behind` prints the cases that real Keras passes and meganeura does not.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "tests" / "keras_suite"
BASELINE = LISTS / "keras"

#: area -> test modules below keras/src
AREAS: dict[str, tuple[str, ...]] = {
    "activations": ("activations/*", "constraints/*"),
    "regularizers": ("regularizers/*",),
    "initializers": ("initializers/*",),
    "losses": ("losses/*",),
    "metrics": ("metrics/*",),
    "optimizers": ("optimizers/*", "optimizers/schedules/*"),
    "pooling": ("layers/pooling/*",),
    "reshaping": ("layers/reshaping/*",),
    "merging": ("layers/merging/*",),
    "regularization": ("layers/regularization/*",),
    "normalization": ("layers/normalization/*",),
    "convolutional": ("layers/convolutional/*",),
    "recurrent": ("layers/rnn/*",),
    "attention": ("layers/attention/*",),
    "core": ("layers/core/*",),
    "preprocessing": ("layers/preprocessing/*",),
    "models": ("models/*",),
    "callbacks": ("callbacks/*",),
}


@functools.cache
def source() -> Path:
    spec = importlib.util.find_spec("keras")
    if spec is None or spec.origin is None:
        sys.exit("the package keras is not installed: pip install 'meganeura[keras-suite]'")
    return Path(spec.origin).parent / "src"


def is_module(parts: list[str]) -> bool:
    path = source().joinpath(*parts)
    return path.with_suffix(".py").is_file() or path.is_dir()


class _Imports(ast.NodeTransformer):
    """`from keras.src.x import y` becomes `y = resolve("keras.src.x", "y")`."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST]:
        module = node.module or ""
        if module == "keras" or module.startswith("keras."):
            found: list[ast.AST] = []
            for alias in node.names:
                call = f"keras_shim.resolve({module!r}, {alias.name!r})"
                if module.endswith("_test"):
                    found += self._from_test(module, alias)
                    continue
                found += ast.parse(f"{alias.asname or alias.name} = {call}").body
            return found
        if module == "conftest":  # decorators that skip on a backend
            lines = (f"{a.name} = lambda *_: lambda test: test" for a in node.names)
            return [s for line in lines for s in ast.parse(line).body]
        if module.split(".")[0] in ("tensorflow", "jax", "grain"):
            return [
                s
                for a in node.names
                for s in ast.parse(f"{a.asname or a.name} = keras_suite.Absent()").body
            ]
        return node

    def _from_test(self, module: str, alias: ast.alias) -> list[ast.AST]:
        name = module.removeprefix("keras.src.").replace(".", "__")
        return list(ast.parse(f"from {name} import {alias.name}").body)

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.AST]:
        found: list[ast.AST] = []
        for alias in node.names:
            head = alias.name.split(".")[0]
            if head == "keras":
                found += ast.parse(f"{alias.asname or 'keras'} = keras_shim.mg").body
            elif head in ("tensorflow", "jax", "grain", "torch"):
                found += ast.parse(f"{alias.asname or head} = keras_suite.Absent()").body
            else:
                found.append(ast.Import([alias]))
        return found


class Absent:
    """Stands for a package that the tests of some backends want."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: object, **kwargs: object) -> object:
        import unittest

        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # a decorator
        raise unittest.SkipTest("wants a package of another backend")


def rewritten(path: Path) -> str:
    tree = ast.fix_missing_locations(_Imports().visit(ast.parse(path.read_text("utf-8"))))
    return "import keras_shim, keras_suite\n" + ast.unparse(tree)


def run(area: str, package: str = "meganeura") -> dict[str, tuple[str, str]]:
    """Case -> (passed, failed or skipped; the first line of what it said), of one package."""
    results: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for path in sorted(source().rglob("*_test.py")):
            name = "__".join(path.relative_to(source()).with_suffix("").parts)
            (Path(folder) / f"{name}.py").write_text(rewritten(path), "utf-8")
            if any(path.relative_to(source()).match(p) for p in AREAS[area]):
                names.append(f"{name}.py")
        report = Path(folder) / "report.xml"
        (Path(folder) / "pytest.ini").write_text(
            "[pytest]\npython_files = *_test.py\nmarkers =\n    requires_trainable_backend\n"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [folder, str(ROOT / "scripts"), str(ROOT), os.environ.get("PYTHONPATH", "")]
            ),
            "MEGANEURA_BACKEND": os.environ.get("MEGANEURA_BACKEND", "numpy"),
            "KERAS_SUITE_OF": package,
            "KERAS_BACKEND": "torch",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors",
                   "-W", "ignore", f"--junitxml={report}", *names]  # fmt: skip
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if not report.is_file():
            sys.exit(f"{area}: pytest made no report\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}".replace("__", "/")
            kind, text = "passed", ""
            for child in case:
                if child.tag in ("failure", "error"):
                    kind, text = (
                        "failed",
                        (child.get("message") or "").splitlines()[0][:200]
                        if child.get("message")
                        else "",
                    )
                elif child.tag == "skipped":
                    kind, text = "skipped", (child.get("message") or "")[:200]
            results[re.sub(r"0x[0-9a-f]+", "0x", name)] = (kind, text)
    return results


#: What a case's name and message say of why it fails; the first that fits.
REASONS = (
    (r"bfloat16|float64", "asks for bfloat16 or float64, which WGSL does not have"),
    (r"quanti[sz]|int4|_int8|awq|gptq|float8|Quanti", "Keras's quantized layers are not offered"),
    (r"lora", "low-rank adaptation is set up in another way here (layers.lora)"),
    (r"[Oo]rbax|OrbaxCheckpoint", "checkpoints of orbax are not offered"),
    (r"StringLookup|TextVectorization|strings", "strings are not offered"),
    (r"\.export|saved_model|onnx", "export to other frameworks' formats is not offered"),
    (r"has no attribute '_|\._[a-z]", "looks at a private attribute of Keras's"),
    (
        r"has no public counterpart|module 'meganeura",
        "uses a function inside Keras that is not public",
    ),
    (r"stateless|state_tree", "the stateless interface of the JAX backend is not offered"),
    (
        r"configuration names the layer|not known; pass it in custom",
        "no class is imported because a file or config names its module",
    ),
    (r"[Ll]ambda", "the code of a Lambda is neither written nor read"),
)


def reason(name: str, text: str) -> str:
    for pattern, sentence in REASONS:
        if re.search(pattern, f"{name} {text}"):
            return sentence
    return "not judged yet: " + re.sub(r"0x[0-9a-f]+", "0x", text[:100])


def expected(area: str) -> dict[str, str]:
    path = LISTS / f"{area}.txt"
    if not path.is_file():
        return {}
    lines = [
        line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")
    ]
    return dict(line.split("\t", 1) for line in lines)


def baseline(area: str) -> set[str]:
    """The cases of an area that real Keras passes when it is confined to its public names."""
    path = BASELINE / f"{area}.txt"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return {
        f"{home}.{case}"
        for home, _, cases in (s.partition(": ") for s in lines)
        for case in cases.split()
    }


def measure(area: str) -> dict[str, tuple[str, str]]:
    """Run an area against real Keras and store what passes."""
    results = run(area, "keras")
    homes: dict[str, list[str]] = {}
    for name, (kind, _) in sorted(results.items()):
        if kind == "passed":
            home, _, case = name.rpartition(".")
            homes.setdefault(home, []).append(case)
    BASELINE.mkdir(exist_ok=True)
    text = "".join(f"{home}: {' '.join(cases)}\n" for home, cases in homes.items())
    (BASELINE / f"{area}.txt").write_text(text, "utf-8")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", default=",".join(AREAS))
    parser.add_argument(
        "--list", default="", help="print these cases: failed, skipped, passed, behind"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the failed cases where none are listed yet"
    )
    parser.add_argument(
        "--baseline", action="store_true", help="measure real Keras, and store what passes"
    )
    arguments = parser.parse_args()
    if arguments.baseline:
        for area in arguments.area.split(","):
            results = measure(area)
            print(f"{area:16s} {len(baseline(area)):5d} of {len(results):5d}", flush=True)
            for name, (kind, text) in results.items():
                if kind in arguments.list.split(","):
                    print(f"    {name}: {text}")
        return 0
    bad = 0
    columns = ("passed", "listed", "failed", "skipped", "keras", "of those")
    total = dict.fromkeys(columns, 0)

    def show(title: str, row: dict[str, int]) -> None:
        share = f"{100 * row['of those'] / row['keras']:8.1f} %" if row["keras"] else ""
        print(f"{title:16s} " + " ".join(f"{row[c]:8d}" for c in columns) + share, flush=True)

    print(f"{'area':16s} " + " ".join(f"{c:>8s}" for c in columns))
    for area in arguments.area.split(","):
        results, known = run(area), expected(area)
        failed = {n: t for n, (k, t) in results.items() if k == "failed"}
        new = {n: t for n, t in failed.items() if n not in known}
        healed = [n for n in known if n in results and results[n][0] == "passed"]
        count = {k: sum(v[0] == k for v in results.values()) for k in ("passed", "skipped")}
        real = baseline(area)
        behind = sorted(n for n in real if results.get(n, ("", ""))[0] != "passed")
        row = {
            **count,
            "listed": len(failed) - len(new),
            "failed": len(new),
            "keras": len(real),
            "of those": len(real) - len(behind),
        }
        for key, value in row.items():
            total[key] += value
        show(area, row)
        for name, (kind, text) in results.items():
            if kind in arguments.list.split(",") and not (kind == "failed" and name in known):
                print(f"    {name}: {text}")
        if "behind" in arguments.list.split(","):
            for name in behind:
                kind, text = results.get(name, ("not collected", ""))
                print(f"    {name}: {kind}: {known.get(name) or text}")
        for name in healed:
            print(f"    passes now, take it off the list: {name}")
        if arguments.write:
            lines = sorted({**known, **{n: reason(n, t) for n, t in new.items()}}.items())
            LISTS.mkdir(exist_ok=True)
            (LISTS / f"{area}.txt").write_text(
                "".join(f"{n}\t{t}\n" for n, t in lines if n not in healed)
            )
        bad += len(new) + len(healed)
    show("total", total)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

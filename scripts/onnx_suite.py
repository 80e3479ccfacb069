"""Run the node tests that the `onnx` package generates, and say how many pass.

    python scripts/onnx_suite.py [--list failed] [--only Conv]

Skipped are tests of element types that are not offered (64-bit floats, halves, strings, complex,
8- and 4-bit floats), of operators that are not offered, and of control flow and sequences.
"""

import argparse
import collections
import sys
import warnings

import numpy as np

OFFERED = {
    "float32",
    "int32",
    "int64",
    "uint8",
    "bool",
    "uint32",
    "int8",
    "int16",
    "uint16",
    "uint64",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--list", default="failed", help="which results to list: failed, skipped, passed, all"
    )
    parser.add_argument("--only", default="", help="part of the tests' names")
    parser.add_argument("--least", type=int, default=0, help="fail unless this many pass")
    arguments = parser.parse_args()

    import onnx
    from onnx.backend.test.case.node import collect_testcases

    from meganeura.onnx.importer import HANDLERS, OnnxModel
    from meganeura.onnx.registry import OnnxError

    results: dict[str, list[str]] = collections.defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if arguments.only not in case.name:
            continue
        reason = skip_reason(onnx, case, HANDLERS)
        if reason:
            results["skipped"].append(f"{case.name}: {reason}")
            continue
        try:
            for inputs, outputs in case.data_sets:
                model = OnnxModel(case.model)
                names = [i.name for i in case.model.graph.input]
                arrays = [np.asarray(i) for i in inputs]
                found = model(dict(zip(names, arrays, strict=False)))
                found = found if isinstance(found, list) else [found]
                for got, expected in zip(found, outputs, strict=True):
                    got = np.asarray(got)
                    if isinstance(expected, onnx.TensorProto):
                        expected = onnx.numpy_helper.to_array(expected)
                    if got.shape != expected.shape:
                        raise AssertionError(f"shape {got.shape} for {expected.shape}")
                    np.testing.assert_allclose(
                        got.astype(np.float64), np.asarray(expected, np.float64),
                        rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-5),
                    )  # fmt: skip
            results["passed"].append(case.name)
        except OnnxError as error:
            results["skipped"].append(f"{case.name}: {error}")
        except Exception as error:
            text = str(error).strip().replace("\n", " ")
            results["failed"].append(f"{case.name}: {type(error).__name__}: {text[:200]}")
    for kind, lines in results.items():
        if arguments.list in (kind, "all"):
            print(*lines, sep="\n")
    counts = {kind: len(results[kind]) for kind in ("passed", "failed", "skipped")}
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return int(bool(counts["failed"]) or counts["passed"] < arguments.least)


def skip_reason(onnx, case, handlers) -> str:
    """Why a test cannot apply, or an empty string."""
    graph = case.model.graph
    kinds = {n.op_type for n in graph.node}
    static = {"Constant", "ConstantOfShape", "Range"}
    missing = sorted(k for k in kinds if k not in handlers and k not in static)
    if missing:
        return f"operator {', '.join(missing)} is not offered"
    if any(n.domain not in ("", "ai.onnx") for n in graph.node):
        return "operators of another domain"
    for value in (*graph.input, *graph.output):
        if not value.type.HasField("tensor_type"):
            return "sequences and optionals are not offered"
        code = value.type.tensor_type.elem_type
        try:
            dtype = str(onnx.helper.tensor_dtype_to_np_dtype(code))
        except KeyError:
            dtype = str(code)
        if dtype not in OFFERED:
            return f"element type {dtype} is not offered"
    return ""


if __name__ == "__main__":
    sys.exit(main())

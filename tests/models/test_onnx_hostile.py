"""ONNX files that lie, or reach for what is not theirs: each is refused in a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT = 1


def save(
    path: Path, nodes: list[Any], initializers: list[Any] = (), outputs: Any = ("y",), **more: Any
) -> Path:  # type: ignore[assignment]
    graph = helper.make_graph(
        nodes, "g",
        more.pop("inputs", [helper.make_tensor_value_info("x", FLOAT, [2, 4])]),
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs], list(initializers),
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], **more)
    path.write_bytes(model.SerializeToString())
    return path


def external(location: str | None, shape: tuple[int, ...] = (4,), **entries: Any) -> Any:
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    if location is not None:
        entries = {"location": location, **entries}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


ADD = [helper.make_node("Add", ["x", "w"], ["y"], name="add")]


def test_external_data_are_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    values = np.arange(8, dtype="float32")
    (tmp_path / "sub" / "w.bin").write_bytes(values.tobytes())
    for entries, expected in (({}, values[:4]), ({"offset": 16, "length": 16}, values[4:])):
        model = mg.onnx.load(save(tmp_path / "m.onnx", ADD, [external("sub/w.bin", **entries)]))
        np.testing.assert_array_equal(model(np.zeros((2, 4), "float32")), np.tile(expected, (2, 1)))
    proto = onnx.load(
        save(tmp_path / "n.onnx", ADD, [onnx.numpy_helper.from_array(values[:4], "w")])
    )
    onnx.save_model(
        proto, tmp_path / "n.onnx", save_as_external_data=True, location="n.bin", size_threshold=0
    )
    model = mg.onnx.load(tmp_path / "n.onnx")
    np.testing.assert_array_equal(model(np.zeros((2, 4), "float32"))[0], values[:4])


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (external("../w.bin"), "outside the model's folder"),
        (external("sub/../../w.bin"), "outside the model's folder"),
        (external("sub/../w.bin"), "outside the model's folder"),
        (external("/etc/hostname"), "outside the model's folder"),
        (external("..\\w.bin"), "outside the model's folder"),
        (external("link.bin"), "outside the model's folder"),
        (external("inner_link.bin"), "outside the model's folder"),
        (external("away/w.bin"), "outside the model's folder"),
        (external("hard.bin"), "no plain file"),
        (external("sub"), "no plain file"),
        (external("pipe"), "no plain file"),
        (external("missing.bin"), "no plain file"),
        (external(None), "does not say in which file"),
        (external("a\0b"), "does not say in which file"),
        (external("w.bin", offset=-4), "needs the bytes -4"),
        (external("w.bin", offset=4), "needs the bytes 4 to 20"),
        (external("w.bin", offset=10**18), "which has 16"),
        (external("w.bin", offset="x"), "no number"),
        (external("w.bin", length=8), "is given 8"),
        (external("w.bin", (1 << 40, 1 << 20)), "which has 16"),
        (external("w.bin", (-4,)), "has the shape"),
    ],
)  # fmt: skip
def test_external_data_elsewhere(tmp_path: Path, tensor: Any, message: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, folder):
        (place / "w.bin").write_bytes(bytes(16))
    (tmp_path / "h.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "inner_link.bin").symlink_to(folder / "w.bin")
    (folder / "away").symlink_to(tmp_path)
    os.link(tmp_path / "h.bin", folder / "hard.bin")
    os.mkfifo(folder / "pipe")
    with pytest.raises(ValueError, match=message) as caught:
        mg.onnx.load(save(folder / "m.onnx", ADD, [tensor]))
    assert "'w'" in str(caught.value)


def test_external_data_in_attributes_and_subgraphs(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["w"], value=external("/etc/hostname"))
    with pytest.raises(ValueError, match="outside the model's folder"):
        mg.onnx.load(save(tmp_path / "m.onnx", [constant, *ADD]))
    branch = helper.make_graph(
        [constant], "b", [], [helper.make_tensor_value_info("w", FLOAT, None)]
    )
    choice = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    with pytest.raises(ValueError, match="outside the model's folder"):
        mg.onnx.load(save(tmp_path / "m.onnx", [choice]))


def dense(shape: tuple[int, ...], data: bytes, name: str = "w", kind: int = FLOAT) -> Any:
    return onnx.TensorProto(name=name, data_type=kind, dims=shape, raw_data=data)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([dense((1 << 40,), bytes(16))], "needs 4398046511104 bytes"),
        ([dense((1 << 62, 1 << 62), bytes(16))], "needs"),
        ([dense((-4,), bytes(16))], "has the shape"),
        ([dense((4,), bytes(15))], "needs 16 bytes"),
        ([dense((4,), bytes(16), kind=99)], "type 99"),
        ([dense((4,), bytes(16))] * 2, "'w' twice"),
        ([onnx.TensorProto(name="w", data_type=FLOAT, dims=(1 << 40,), float_data=[1.0])], "'w' cannot"),
    ],
)  # fmt: skip
def test_tensors_that_are_not_what_they_say(
    tmp_path: Path, tensors: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mg.onnx.load(save(tmp_path / "m.onnx", ADD, tensors))


W = dense((4,), bytes(16))


@pytest.mark.parametrize(
    ("nodes", "more", "message"),
    [
        ([helper.make_node("Add", ["x", "z"], ["y"], name="add")], {}, "'add'.*'z', which nothing"),
        ([helper.make_node("Relu", ["h"], ["y"]), helper.make_node("Relu", ["y"], ["h"])], {}, "'h', which nothing"),
        ([*ADD, *ADD], {}, "'y', which is given before"),
        ([helper.make_node("Relu", ["x"], ["w"], name="r")], {"outputs": ["w"]}, "'w', which is given before"),
        (ADD, {"outputs": ["elsewhere"]}, "output 'elsewhere' is given by no node"),
        (ADD, {"inputs": [helper.make_tensor_value_info("x", FLOAT, [4])] * 2}, "'x' twice"),
    ],
)  # fmt: skip
def test_names(tmp_path: Path, nodes: list[Any], more: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.onnx.load(save(tmp_path / "m.onnx", nodes, [W], **more))


def ints(name: str, *values: int) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, "int64"), name)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("ConstantOfShape", [ints("s", 1 << 20, 1 << 20)]),
        ("Range", [onnx.numpy_helper.from_array(np.int64(n), f"n{i}") for i, n in enumerate((0, 1 << 50, 1))]),
        ("Expand", [dense((1,), bytes(4), "e"), ints("s", 1 << 40)]),
        ("Tile", [dense((1,), bytes(4), "e"), ints("s", 1 << 40)]),
        ("Pad", [dense((1,), bytes(4), "e"), ints("p", 1 << 40, 0)]),
        ("HannWindow", [onnx.numpy_helper.from_array(np.int64(1 << 40), "n")]),
    ],
)  # fmt: skip
def test_constants_out_of_proportion(tmp_path: Path, kind: str, inputs: list[Any]) -> None:
    make = helper.make_node(kind, [t.name for t in inputs], ["c"], name="huge")
    nodes = [make, helper.make_node("Shape", ["c"], ["y"])]
    with pytest.raises(ValueError, match=r"'huge' \(\w+\) makes a constant of \d+ elements"):
        mg.onnx.load(save(tmp_path / "m.onnx", nodes, inputs))(np.zeros((2, 4), "float32"))


def sub(kind: str) -> Callable[[], Any]:
    def node() -> Any:
        value = helper.make_tensor_value_info
        inner = helper.make_node("Identity", ["i" if kind != "If" else "x"], ["o"])
        given = {
            "If": [],
            "Loop": [value("n", 7, []), value("c", 9, []), value("i", FLOAT, None)],
            "Scan": [value("i", FLOAT, None)],
        }[kind]
        graph = helper.make_graph([inner], "body", given, [value("o", FLOAT, None)])
        if kind == "If":
            return helper.make_node(
                "If", ["x"], ["y"], name="n", then_branch=graph, else_branch=graph
            )
        more = {"num_scan_inputs": 1} if kind == "Scan" else {}
        inputs = ["x"] if kind == "Scan" else ["", "", "x"]
        return helper.make_node(kind, inputs, ["y"], name="n", body=graph, **more)

    return node


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
def test_control_flow_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"node 'n' \({kind}\) cannot be imported: control flow"):
        mg.onnx.load(save(tmp_path / "m.onnx", [sub(kind)()]))


def test_random_damage(tmp_path: Path) -> None:
    """Whatever bytes are changed, the file loads or is refused by a ValueError."""
    nodes = [
        helper.make_node("Gemm", ["x", "k", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [dense((4, 4), bytes(64), "k"), W])
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(data)
        try:
            mg.onnx.load(path)
        except ValueError as error:
            assert str(error)

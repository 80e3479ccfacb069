"""GGUF files that the gguf package wrote give the model that the safetensors file gives."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meganeura.quantization.variable import PackedVariable
from meganeura.saving.safe_h5 import DamagedFileError
from meganeura.saving.safetensors import save_safetensors
from meganeura.zoo.gguf_files import _INSIDE, _OUTSIDE, from_gguf
from meganeura.zoo.pretrained import from_pretrained

gguf = pytest.importorskip("gguf")

HEADS, GROUPS, WIDTH, INNER = 4, 2, 32, 64
CONFIG = {
    "vocab_size": 61, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 2,
    "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "head_dim": 8,
}  # fmt: skip
ROWS = {"attn_q": WIDTH, "attn_k": WIDTH // 2, "attn_v": WIDTH // 2, "attn_output": WIDTH,
        "ffn_gate": INNER, "ffn_up": INNER, "ffn_down": WIDTH}  # fmt: skip


def weights(bias: bool) -> dict[str, np.ndarray]:
    """By the names of the file, in the rows' order of Hugging Face."""
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype("float32") / np.float32(3)

    found = {"token_embd.weight": drawn(61, WIDTH), "output_norm.weight": 1 + drawn(WIDTH)}
    if not bias:
        found["output.weight"] = drawn(61, WIDTH)
    for i in range(2):
        for name, rows in ROWS.items():
            columns = INNER if name == "ffn_down" else WIDTH
            found[f"blk.{i}.{name}.weight"] = drawn(rows, columns)
            if bias and name in ("attn_q", "attn_k", "attn_v"):
                found[f"blk.{i}.{name}.bias"] = drawn(rows)
        for name in ("attn_norm", "ffn_norm"):
            found[f"blk.{i}.{name}.weight"] = 1 + drawn(WIDTH)
    return found


def write(path: Path, family: str, quantized: str, tensors: dict[str, np.ndarray], **more: Any):
    """The file, and the tensors as the file's blocks hold them."""
    kind = gguf.GGMLQuantizationType[quantized]
    file = gguf.GGUFWriter(path, family)
    file.add_block_count(2)
    file.add_context_length(64)
    file.add_embedding_length(WIDTH)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(GROUPS)
    file.add_layer_norm_rms_eps(1e-5)
    for key, value in more.items():
        file.add_string(f"{family}.{key}", value)
    held = {}
    for name, array in tensors.items():
        of = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        blocks = gguf.quants.quantize(array, of)
        held[name] = gguf.quants.dequantize(blocks, of).reshape(array.shape)
        if family == "llama" and ("attn_q" in name or "attn_k" in name):
            heads = HEADS if "attn_q" in name else GROUPS
            size = (
                len(array) // heads
            )  # row r of a head's first half goes to 2 r, of its second to 2 r + 1
            rows = [
                h * size + r // 2 + r % 2 * (size // 2) for h in range(heads) for r in range(size)
            ]
            blocks = blocks[rows]
        file.add_tensor(name, blocks, raw_dtype=of)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return held


@pytest.mark.parametrize("quantized", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_same_model_as_from_safetensors(tmp_path: Path, family: str, quantized: str) -> None:
    held = write(tmp_path / "m.gguf", family, quantized, weights(family == "qwen2"))
    named = {}
    for name, array in held.items():
        stem, _, kind = name.rpartition(".")
        block = stem.split(".")
        full = _OUTSIDE.get(stem) or f"model.layers.{block[1]}.{_INSIDE[block[2]]}"
        named[f"{full}.{kind}"] = array
    save_safetensors(tmp_path / "model.safetensors", named)
    kind = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[family]
    config = {**CONFIG, "architectures": [kind], "model_type": family,
              "tie_word_embeddings": family == "qwen2"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = np.arange(12, dtype="int32").reshape(2, 6) * 5 % 61
    expected = np.asarray(from_pretrained(tmp_path)(tokens))
    np.testing.assert_allclose(
        np.asarray(from_gguf(tmp_path / "m.gguf")(tokens)), expected, 1e-5, 1e-5
    )


@pytest.mark.parametrize("quantized", ["F16", "Q8_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_blocks_stay_as_they_are_stored(
    tmp_path: Path, family: str, quantized: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values that expanding gives, with none of the tables ever expanded."""
    path = tmp_path / "m.gguf"
    write(path, family, quantized, weights(family == "qwen2"))
    expanded = from_pretrained(path)
    expand = gguf.quants.dequantize

    def small_ones_only(data: np.ndarray, kind: Any) -> np.ndarray:
        assert kind == gguf.GGMLQuantizationType.F32, "a table was expanded"
        return expand(data, kind)

    monkeypatch.setattr(gguf.quants, "dequantize", small_ones_only)
    model = from_pretrained(path, quantize="stored")
    for a, b in zip(model.weights, expanded.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    tables = [w for w in model.weights if isinstance(w, PackedVariable)]
    assert {t.format.name for t in tables} == {{"Q4_0": "q4_1"}.get(quantized, quantized.lower())}
    assert len(tables) == sum(w.ndim == 2 for w in model.weights)
    ratio = {"F16": 2, "Q8_0": 128 / 34}.get(quantized, 6.4)
    assert sum(4 * t.size for t in tables) / sum(t.nbytes for t in tables) == pytest.approx(
        ratio, 1e-3
    )
    tokens = np.arange(12, dtype="int32").reshape(2, 6) * 5 % 61
    np.testing.assert_allclose(
        np.asarray(model(tokens)), np.asarray(expanded(tokens)), rtol=1e-5, atol=1e-5
    )


def test_tables_are_packed_as_they_are_read(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", "llama", "F32", weights(False))
    model = from_gguf(tmp_path / "m.gguf", quantize="q8_0")
    other = from_gguf(tmp_path / "m.gguf")
    other.quantize("q8_0")
    for a, b in zip(model.weights, other.weights, strict=True):
        assert type(a) is type(b)
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    stored = from_gguf(tmp_path / "m.gguf", quantize="stored")
    assert not any(isinstance(w, PackedVariable) for w in stored.weights)
    with pytest.raises(ValueError, match="'q5_k' is no format"):
        from_gguf(tmp_path / "m.gguf", quantize="q5_k")


def test_what_is_not_offered_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", "falcon", "F32", weights(False))
    with pytest.raises(ValueError, match="falcon"):
        from_gguf(tmp_path / "a.gguf")
    write(tmp_path / "b.gguf", "llama", "F32", weights(False), **{"rope.scaling.type": "yarn"})
    with pytest.raises(ValueError, match="scales its positions"):
        from_gguf(tmp_path / "b.gguf")
    extra = {**weights(False), "rope_freqs.weight": np.ones(4, "float32")}
    write(tmp_path / "c.gguf", "llama", "F32", extra)
    with pytest.raises(ValueError, match="rope_freqs"):
        from_gguf(tmp_path / "c.gguf")
    lacking = weights(False)
    del lacking["blk.1.ffn_up.weight"]
    write(tmp_path / "d.gguf", "llama", "F32", lacking)
    with pytest.raises(ValueError, match="up_proj"):
        from_gguf(tmp_path / "d.gguf")


@pytest.mark.parametrize("size", [0, 20, 400])
def test_truncated_files_are_refused(tmp_path: Path, size: int) -> None:
    write(tmp_path / "m.gguf", "llama", "F32", weights(False))
    (tmp_path / "t.gguf").write_bytes((tmp_path / "m.gguf").read_bytes()[:size])
    with pytest.raises(DamagedFileError):
        from_gguf(tmp_path / "t.gguf")


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(
    keys: Sequence[bytes] = (), tensors: Sequence[bytes] = (), count: tuple[int, int] | None = None,
    version: int = 3, data: bytes = b"",
) -> bytes:  # fmt: skip
    counts = count or (len(tensors), len(keys))
    whole = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join([*keys, *tensors])
    return whole + b"\0" * (-len(whole) % 32) + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: Sequence[int], kind: int = 0, place: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, place)


ALIGNMENT = "general.alignment"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGML" + bytes(60), "does not begin"),
        (header(version=9), "version 9"),
        (header(count=(0, 1 << 60)), "0 is left|are left"),
        (header(count=(1 << 60, 0)), "are left"),
        (header([struct.pack("<Q", 1 << 62)]), "name of"),
        (header([key("k", 8, struct.pack("<Q", 1 << 62))]), "'k'.*are left"),
        (header([key("k", 9, struct.pack("<IQ", 4, 1 << 60))]), "'k'.*are left"),
        (header([key("k", 9, struct.pack("<IQ", 8, 1 << 60))]), "'k'.*elements"),
        (header([key("k", 9, struct.pack("<IQ", 9, 1) * 9 + bytes(64))]), "type 9"),
        (header([key("k", 77, bytes(8))]), "type 77"),
        (header([key("k", 7, b"1"), key("k", 7, b"1")]), "'k' twice"),
        (header([text("\0").replace(b"\0", b"\xff") + bytes(9)]), "no text|name of"),
        (header([key(ALIGNMENT, 4, struct.pack("<I", 0))]), "power of two"),
        (header([key(ALIGNMENT, 4, struct.pack("<I", 48))]), "power of two"),
        (header([key(ALIGNMENT, 8, text("x"))]), "power of two"),
        (header(tensors=[tensor("t", (4,))] * 2, data=bytes(16)), "'t' twice"),
        (header(tensors=[tensor("t", (4, 4, 4, 4, 4))]), "5 dimensions"),
        (header(tensors=[tensor("t", (1 << 32, 1 << 32))], data=bytes(64)), "bytes up to"),
        (header(tensors=[tensor("t", (4,), place=1 << 62)], data=bytes(64)), "bytes up to"),
        (header(tensors=[tensor("t", (4,))], data=bytes(15)), "bytes up to"),
        (header(tensors=[tensor("t", (4,), kind=999)]), "type 999"),
        (header(tensors=[tensor("t", (33,), kind=8)], data=bytes(64)), "whose blocks have 32"),
        (
            header(tensors=[tensor("t", (16,)), tensor("u", (16,), place=32)], data=bytes(128)),
            "overlaps",
        ),
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "evil.gguf").write_bytes(content)
    with pytest.raises(DamagedFileError, match=message) as caught:
        from_gguf(tmp_path / "evil.gguf")
    assert "evil.gguf" in str(caught.value)


def test_random_damage(tmp_path: Path) -> None:
    """Whatever bytes of the header are changed, the file loads or is refused by a ValueError."""
    write(tmp_path / "m.gguf", "llama", "F32", weights(False))
    whole = (tmp_path / "m.gguf").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(1200)] = rng.integers(256)
        (tmp_path / "e.gguf").write_bytes(data)
        try:
            from_gguf(tmp_path / "e.gguf")
        except ValueError as error:
            assert str(error)

"""Reading packed tables: the WGSL of one value and of four neighbours, for each format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meganeura.graph.node import Node
from meganeura.schedule import index as ix
from meganeura.schedule.index import Index

if TYPE_CHECKING:
    from meganeura.schedule.writer import Writer

Reader = Callable[["Writer", Node, Index, Index], str]


def element(writer: Writer, node: Node, row: Index, column: Index) -> str:
    """The value at (row, column), an f32."""
    return _ELEMENT[node.attributes["format"]](writer, node, row, column)


def quad(writer: Writer, node: Node, row: Index, number: Index) -> str:
    """The values at columns 4 number to 4 number + 3 of a row, a vec4<f32>."""
    return _QUAD[node.attributes["format"]](writer, node, row, number)


def _word(writer: Writer, node: Node, row: Index, place: Index) -> str:
    return writer.value(node.inputs[0], (row, place))


def _scale(writer: Writer, node: Node, row: Index, block: Index, halves: int) -> str:
    """The word that holds the scales of a block, moved so that its half is the low one."""
    blocks = node.shape[1] // 32
    number = ix.add(ix.mul(row, blocks), block)
    if halves == 2:
        return writer.value(node.inputs[1], (number,))
    word = writer.value(node.inputs[1], (ix.div(number, 2),))
    return f"({word} >> ({ix.mul(ix.mod(number, 2), 16).text()}))"


def _f16(writer: Writer, node: Node, row: Index, column: Index) -> str:
    word = _word(writer, node, row, ix.div(column, 2))
    pair = writer.let(f"unpack2x16float({word})")
    return writer.let(f"select({pair}.x, {pair}.y, {ix.mod(column, 2).text()} == 1u)")


def _f16_quad(writer: Writer, node: Node, row: Index, number: Index) -> str:
    pairs = [_word(writer, node, row, ix.add(ix.mul(number, 2), ix.const(i))) for i in range(2)]
    return f"vec4<f32>({', '.join(f'unpack2x16float({p})' for p in pairs)})"


def _q8_0(writer: Writer, node: Node, row: Index, column: Index) -> str:
    word = _word(writer, node, row, ix.div(column, 4))
    d = writer.let(f"unpack2x16float({_scale(writer, node, row, ix.div(column, 32), 1)}).x")
    offset = ix.mul(ix.mod(column, 4), 8).text()
    return writer.let(f"(f32(extractBits(bitcast<i32>({word}), {offset}, 8u)) * {d})")


def _q8_0_quad(writer: Writer, node: Node, row: Index, number: Index) -> str:
    word = _word(writer, node, row, number)
    d = writer.let(f"unpack2x16float({_scale(writer, node, row, ix.div(number, 8), 1)}).x")
    signed = f"(vec4<i32>(bitcast<i32>({word})) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u)"
    return f"vec4<f32>({signed}) * {d}"


def _q4_1(writer: Writer, node: Node, row: Index, column: Index) -> str:
    block, inside = ix.div(column, 32), ix.mod(column, 32)
    place = ix.add(ix.mul(block, 4), ix.div(ix.mod(inside, 16), 4))
    word = _word(writer, node, row, place)
    offset = ix.add(ix.mul(ix.mod(inside, 4), 8), ix.mul(ix.div(inside, 16), 4)).text()
    scales = writer.let(f"unpack2x16float({_scale(writer, node, row, block, 2)})")
    return writer.let(f"fma(f32(extractBits({word}, {offset}, 4u)), {scales}.x, {scales}.y)")


def _q4_1_quad(writer: Writer, node: Node, row: Index, number: Index) -> str:
    block, inside = ix.div(number, 8), ix.mod(number, 8)
    word = _word(writer, node, row, ix.add(ix.mul(block, 4), ix.mod(inside, 4)))
    offset = ix.mul(ix.div(inside, 4), 4).text()
    scales = writer.let(f"unpack2x16float({_scale(writer, node, row, block, 2)})")
    nibbles = f"(vec4<u32>({word} >> ({offset})) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u)"
    return f"fma(vec4<f32>({nibbles}), vec4<f32>({scales}.x), vec4<f32>({scales}.y))"


_ELEMENT: dict[str, Reader] = {"f16": _f16, "q8_0": _q8_0, "q4_1": _q4_1}
_QUAD: dict[str, Reader] = {"f16": _f16_quad, "q8_0": _q8_0_quad, "q4_1": _q4_1_quad}

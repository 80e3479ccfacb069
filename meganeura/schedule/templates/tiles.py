"""Blocks of a product in workgroup memory: the text of the kernel, and the choice among sizes.

A workgroup computes BM x BN outputs, BK terms at a time. Each thread keeps a grid of 4 x 4 chunks in
named registers; 32 neighbouring threads form a cell 4 deep and 8 wide, so that a step of 32 threads
reads 4 + 8 different quads of the tiles. What the next turn multiplies is fetched into registers while
this turn multiplies. Where outputs are few, several slices of threads share the terms of one block and
add up at the end, in a fixed order: many reads are then under way at once, and no second kernel is needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from meganeura.ops.parts import part_length
from meganeura.schedule import choices
from meganeura.schedule.plan import Limits
from meganeura.schedule.shader_text import shader
from meganeura.schedule.templates.base import ceil_div


@dataclass(frozen=True)
class Tile:
    """bm x bn outputs to a workgroup, bk terms to a turn, tm x tn outputs to a thread."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    #: threads among which the terms of a block are shared
    slices: int = 1
    #: how much of the device's arithmetic such blocks reach when there are enough of them
    efficiency: float = 1.0

    @property
    def label(self) -> str:
        return f"{self.bm}x{self.bn}x{self.bk}:{self.tm}x{self.tn}/{self.slices}"

    @property
    def lanes(self) -> int:
        return (self.bm // self.tm) * (self.bn // self.tn)

    @property
    def threads(self) -> int:
        return self.lanes * self.slices

    @property
    def memory(self) -> int:
        """vec4s of workgroup memory."""
        tiles = self.slices * self.bk * (self.bm + self.bn) // 4
        return max(tiles, self.slices * self.bm * self.bn // 4 if self.slices > 1 else 0)

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor works on at a time, as far as registers and memory go."""
        registers = self.threads * (1.15 * self.tm * self.tn + 48)
        memory = 16 * self.memory + 1024
        return max(1, min(int(65536 / registers), 228 * 1024 // memory, 2048 // self.threads, 32))

    def fits(self, limits: Limits) -> bool:
        return self.threads <= limits.invocations and 16 * self.memory <= limits.workgroup_bytes


#: How much of the device's arithmetic blocks reach is of an H200: its measured best were fitted over 26 products
#: in 871 ways (`bench/tiles.py`).
TILES = (
    Tile(128, 128, 16, 8, 16, efficiency=0.56),
    Tile(64, 128, 16, 8, 8, efficiency=0.53),
    Tile(128, 64, 16, 8, 8, efficiency=0.525),
    Tile(64, 64, 16, 8, 8, efficiency=0.49),
    Tile(64, 64, 16, 8, 4, efficiency=0.44),
    Tile(64, 32, 16, 8, 4, efficiency=0.4),
    Tile(32, 64, 16, 4, 8, efficiency=0.4),
    *(Tile(32, 32, 16, 4, 4, slices=s, efficiency=0.36) for s in (2, 4, 8)),
    *(Tile(16, 32, 16, 4, 4, slices=s, efficiency=0.3) for s in (2, 4, 8, 16)),
)
BY_LABEL = {tile.label: tile for tile in TILES}
#: Numbers of parts that are tried.
PARTS = (1, 2, 3, 4, 6, 8, 16, 32, 64)

#: What the estimate assumes of a device: multiprocessors, multiplications and additions of one in a microsecond,
#: bytes that all fetch in a microsecond, and microseconds for a turn of a block, however small, and for
#: what adds up parts.
_PROCESSORS, _RATE, _BYTES, _TURN, _SUM = 132, 250_000, 4_200_000, 0.375, 3.8


def _estimate(tile: Tile, batch: int, m: int, n: int, k: int) -> float:
    """Microseconds of a product in such blocks."""
    blocks = ceil_div(m, tile.bm) * ceil_div(n, tile.bn) * batch
    turns = ceil_div(k, tile.bk * tile.slices)
    unit = tile.bm * tile.bn * tile.bk * tile.slices / (_RATE * tile.efficiency)
    # A turn of a block by itself waits for memory; of several on one processor, while others multiply.
    alone = _TURN + 1.08 * unit
    full, more = divmod(ceil_div(blocks, _PROCESSORS), tile.resident)
    turn = full * max(alone, tile.resident * unit) + (max(alone, more * unit) if more else 0.0)
    return max(turns * turn, 4 * blocks * (tile.bm + tile.bn) * k / _BYTES)


@functools.lru_cache(maxsize=2048)
def choose(batch: int, m: int, n: int, k: int, limits: Limits) -> Tile:
    """The tile that was measured to be best, else the one with the least estimated time."""
    known = BY_LABEL.get(choices.block(limits.measured, (batch, m, n, k)) or "")
    if known is not None and known.fits(limits):
        return known
    usable = [t for t in TILES if t.fits(limits)]
    return min(usable, key=lambda tile: _estimate(tile, batch, m, n, k))


@functools.lru_cache(maxsize=2048)
def parts(batch: int, m: int, n: int, k: int, limits: Limits) -> int:
    """In how many parts to sum up the terms, so that enough blocks keep the device busy."""
    known = choices.parts(limits.measured, (batch, m, n, k))
    if known is not None:
        return known
    if min(m, n) < 4 or k < 128:
        return 1
    times = {p: _in_parts(choose, p, batch, m, n, k, limits) for p in _numbers(batch, m, n, k)}
    best = min(times, key=times.__getitem__)
    return best if times[best] < 0.93 * times[1] - 1 else 1


def candidates(batch: int, m: int, n: int, k: int, limits: Limits) -> list[tuple[float, str]]:
    """Every way to compute a product that fits the device: (estimated time, block and parts); the one that is
    taken without measuring comes first, the others by their estimates."""
    own = parts(batch, m, n, k, limits)
    length = part_length(k, own) if own > 1 else k
    first = f"{choose(batch * own, m, n, length, limits).label}/{own}"
    found = {
        f"{tile.label}/{p}": _in_parts(lambda *_, tile=tile: tile, p, batch, m, n, k, limits)
        for tile in TILES
        if tile.fits(limits)
        for p in _numbers(batch, m, n, k)
    }
    order = sorted(found, key=lambda label: (label != first, found[label]))
    return [(found.get(label, 0.0), label) for label in order]


def _numbers(batch: int, m: int, n: int, k: int) -> list[int]:
    """Numbers of parts: not so many that their sums fill memory, and none of a few terms."""
    return [p for p in PARTS if p == 1 or (k >= 64 * p and p * batch * m * n <= 1 << 23)]


def _in_parts(
    tile: Callable[..., Tile], count: int, batch: int, m: int, n: int, k: int, limits: Limits
) -> float:
    """Microseconds of a product in parts and of what adds them up."""
    length = part_length(k, count) if count > 1 else k
    chosen = tile(batch * count, m, n, length, limits)
    own = _estimate(chosen, batch * count, m, n, length)
    return own if count == 1 else own + _SUM + (2 * count + 1) * batch * m * n / 1e6


@dataclass(frozen=True)
class Operand:
    """How a tile of one operand is read.

    along_terms: neighbouring terms are neighbours in memory, else neighbouring rows (of `b`: columns) are
    vector:      four neighbours may be read at once, with fetch_NAME4
    """

    name: str
    along_terms: bool
    vector: bool


@functools.lru_cache(maxsize=2048)
def block_text(
    m: int, n: int, k: int, tile: Tile, a: Operand, b: Operand, terms: str, quads: bool = False
) -> tuple[str, str]:
    """Declarations and body of the kernel; it calls fetch_a, fetch_b (or fetch_a4, fetch_b4) and put, or
    put4 where `quads` are stored at once."""
    load_a = _Load(a, m, k, tile, tile.bm, "row0", 0)
    load_b = _Load(b, n, k, tile, tile.bn, "column0", tile.slices * tile.bk * tile.bm // 4)
    rows, columns = tile.tm // 4, tile.tn // 4
    declare = [f"var c{i}_{j} = vec4<f32>();" for i in range(tile.tm) for j in range(columns)]
    declare += [f"var p{r} = vec4<f32>();" for r in range(load_a.registers)]
    declare += [f"var q{r} = vec4<f32>();" for r in range(load_b.registers)]
    across = tile.bn // tile.tn // 8
    body = shader(
        "product_block",
        BM=tile.bm, BN=tile.bn, BK=tile.bk, TERMS=terms, STEP=tile.bk * tile.slices, LANES=tile.lanes,
        ACROSS=across, TM=tile.tm, TN=2 * tile.tn,
        A_BASE=f"slice * {tile.bk * tile.bm // 4}u",
        B_BASE=f"{tile.slices * tile.bk * tile.bm // 4}u + slice * {tile.bk * tile.bn // 4}u",
        DECLARE="\n".join(declare),
        FETCH="\n".join([*load_a.fetch("p"), *load_b.fetch("q")]),
        KEEP="\n".join([*load_a.keep("p"), *load_b.keep("q")]),
        MULTIPLY="\n".join(_multiply(tile, rows, columns)),
        STORE="\n".join(_store(m, n, tile, rows, columns, quads)),
    )  # fmt: skip
    return f"var<workgroup> tile: array<vec4<f32>, {tile.memory}>;", body


class _Load:
    """The statements that bring one operand's tile in: from memory to registers, and on to the tile."""

    def __init__(
        self, operand: Operand, limit: int, k: int, tile: Tile, block: int, start: str, base: int
    ):
        self.operand, self.limit, self.k, self.start, self.base = operand, limit, k, start, base
        self.block, self.bk, self.lanes = block, tile.bk, tile.lanes
        self.quads = block // 4
        self.square = operand.along_terms and operand.vector  # 4 x 4, turned over on the way
        self.units = self.quads * (tile.bk // 4 if self.square else tile.bk)
        self.turns = ceil_div(self.units, self.lanes)
        self.each = 4 if self.square else 1
        self.registers = self.turns * self.each
        self.inside = limit % block == 0
        self.whole = k % (tile.bk * tile.slices) == 0

    def _place(self, turn: int) -> str:
        """Which terms and which rows or columns a thread brings in this turn."""
        unit = f"(lane + {turn * self.lanes}u)" if turn else "lane"
        if self.operand.along_terms:
            per = self.bk // 4 if self.square else self.bk
            t, o = f"{unit} % {per}u", f"{unit} / {per}u"
        else:
            t, o = f"{unit} / {self.quads}u", f"{unit} % {self.quads}u"
        return f"let t = {t}{' * 4u' if self.square else ''}; let o = {o};"

    def _call(self, offset: str, wide: bool) -> str:
        outer = f"{self.start} + o * 4u{offset}"
        name = f"fetch_{self.operand.name}{'4' if wide else ''}"
        if self.operand.name == "a":
            return f"{name}(batch, {outer}, k + t)"
        return f"{name}(batch, k + t, {outer})"

    def _guarded(self, tests: list[str], statement: str) -> str:
        return f"if ({' && '.join(tests)}) {{ {statement} }}" if tests else statement

    def fetch(self, register: str) -> list[str]:
        lines = []
        term = [] if self.whole else [f"k + t < {self.k}u"]
        for turn in range(self.turns):
            inner = [self._place(turn)]
            mine = [f"{register}{turn * self.each + r}" for r in range(self.each)]
            inner += [f"{r} = vec4<f32>();" for r in mine if term or not self.inside]
            if self.square:
                for r, name in enumerate(mine):
                    row = [] if self.inside else [f"{self.start} + o * 4u + {r}u < {self.limit}u"]
                    inner.append(
                        self._guarded([*row, *term], f"{name} = {self._call(f' + {r}u', True)};")
                    )
            elif self.operand.vector:
                row = [] if self.inside else [f"{self.start} + o * 4u < {self.limit}u"]
                inner.append(self._guarded([*row, *term], f"{mine[0]} = {self._call('', True)};"))
            else:
                for r in range(4):
                    row = [] if self.inside else [f"{self.start} + o * 4u + {r}u < {self.limit}u"]
                    text = f"{mine[0]}.{'xyzw'[r]} = {self._call(f' + {r}u', False)};"
                    inner.append(self._guarded([*row, *term], text))
            lines.append(self._turn(turn, inner))
        return lines

    def _turn(self, turn: int, inner: list[str]) -> str:
        text = " ".join(inner)
        if (turn + 1) * self.lanes > self.units:
            return f"if (lane + {turn * self.lanes}u < {self.units}u) {{ {text} }}"
        return f"{{ {text} }}"

    def keep(self, register: str) -> list[str]:
        base = f"{self.base}u + slice * {self.bk * self.quads}u"
        lines = []
        for turn in range(self.turns):
            inner = [self._place(turn), f"let d = {base} + t * {self.quads}u + o;"]
            mine = [f"{register}{turn * self.each + r}" for r in range(self.each)]
            if self.square:
                for j, part in enumerate("xyzw"):
                    turned = ", ".join(f"{name}.{part}" for name in mine)
                    inner.append(f"tile[d + {j * self.quads}u] = vec4<f32>({turned});")
            else:
                inner.append(f"tile[d] = {mine[0]};")
            lines.append(self._turn(turn, inner))
        return lines


def _multiply(tile: Tile, rows: int, columns: int) -> list[str]:
    lines = []
    for k in range(tile.bk):
        lines.append("{")
        lines += [f"let a{i} = tile[at_a + {k * tile.bm // 4 + 4 * i}u];" for i in range(rows)]
        lines += [f"let b{j} = tile[at_b + {k * tile.bn // 4 + 8 * j}u];" for j in range(columns)]
        lines += [
            f"c{i}_{j} = fma(vec4<f32>(a{i // 4}.{'xyzw'[i % 4]}), b{j}, c{i}_{j});"
            for i in range(tile.tm)
            for j in range(columns)
        ]
        lines.append("}")
    return lines


def _put(m: int, n: int, tile: Tile, row: str, column: str, value: str, quads: bool) -> str:
    """Store four neighbouring columns of one row."""
    inner = []
    if quads:
        call = f"put4(batch, row, column, {value});"
        inner.append(call if n % tile.bn == 0 else f"if (column < {n}u) {{ {call} }}")
    for q in range(0 if quads else 4):
        call = f"put(batch, row, column + {q}u, {value}.{'xyzw'[q]});"
        inner.append(call if n % tile.bn == 0 else f"if (column + {q}u < {n}u) {{ {call} }}")
    text = f"let column = {column}; {' '.join(inner)}"
    text = text if m % tile.bm == 0 else f"if (row < {m}u) {{ {text} }}"
    return f"{{ let row = {row}; {text} }}"


def _store(m: int, n: int, tile: Tile, rows: int, columns: int, quads: bool) -> list[str]:
    if tile.slices == 1:
        return [
            _put(
                m, n, tile, f"row0 + (cell_row + {4 * (i // 4)}u) * 4u + {i % 4}u",
                f"column0 + (cell_column + {8 * j}u) * 4u", f"c{i}_{j}", quads,
            )
            for i in range(tile.tm)
            for j in range(columns)
        ]  # fmt: skip
    width, size = tile.bn // 4, tile.bm * tile.bn // 4
    lines = [
        f"tile[slice * {size}u + ((cell_row + {4 * (i // 4)}u) * 4u + {i % 4}u) * {width}u"
        f" + cell_column + {8 * j}u] = c{i}_{j};"
        for i in range(tile.tm)
        for j in range(columns)
    ]
    lines.append("workgroupBarrier();")
    total = " + ".join(f"tile[e + {s * size}u]" for s in range(tile.slices))
    for turn in range(math.ceil(size / tile.threads)):
        put = _put(
            m, n, tile, f"row0 + e / {width}u", f"column0 + (e % {width}u) * 4u", "total", quads
        )
        inner = f"let e = thread + {turn * tile.threads}u; let total = {total}; {put}"
        if (turn + 1) * tile.threads > size:
            inner = f"if (thread + {turn * tile.threads}u < {size}u) {{ {inner} }}"
        lines.append(f"{{ {inner} }}")
    return lines

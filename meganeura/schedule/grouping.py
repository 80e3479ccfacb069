"""Which nodes are stored, and which share a kernel."""

from __future__ import annotations

from collections import defaultdict

from meganeura.graph.node import LEAVES, Graph, Node
from meganeura.ops.registry import REGISTRY
from meganeura.schedule.kernels import Draft, MapDraft, depends
from meganeura.schedule.plan import Limits
from meganeura.schedule.row_kernels import RowDraft
from meganeura.schedule.template_kernels import AttendDraft, TemplateDraft
from meganeura.schedule.writer import widens

#: What recomputing an element costs, in simple operations.
_COST = {"random_bits": 60, "power": 16, "gelu": 16, "erf": 12, "divide": 3, "sqrt": 3, "rsqrt": 3}
_COST |= dict.fromkeys(
    (
        "exp",
        "log",
        "expm1",
        "log1p",
        "tanh",
        "sigmoid",
        "silu",
        "softplus",
        "sin",
        "cos",
        "tan",
        "swiglu",
    ),
    6,
)
_LOAD = 6
_DEEPEST = 40
#: Movement that templates read through; more than this many divisions are better done once.
_VIEWS = ("reshape", "transpose", "broadcast_to", "slice", "flip", "pad", "recompute")


def stored_nodes(graph: Graph, limits: Limits) -> dict[int, Node]:
    """The nodes whose values are kept in memory: results, products, reductions, and whatever is
    dearer to compute again for every reader than to store once."""
    order = graph.nodes()
    stored: dict[int, Node] = {}
    consumers: dict[int, list[Node]] = defaultdict(list)
    for node in order:
        for x in {id(x): x for x in node.inputs}.values():
            consumers[id(x)].append(node)
    for node in graph.roots:
        stored[id(node)] = node
    scored = {id(n.inputs[4]) for n in order if n.op == "attend" and len(n.inputs) > 2}
    for node in order:
        if node.op != "attend" and any(id(x) in scored for x in node.inputs):
            scored.add(id(node))
        if REGISTRY[node.op].kind in ("template", "reduction"):
            stored[id(node)] = node
        if REGISTRY[node.op].kind == "template":
            for x in _kept_operands(node):
                base = _operand_base(x)
                bases = map(_operand_base, base.inputs) if base.op == "dequantize" else (base,)
                stored.update({id(b): b for b in bases})
    cost: dict[int, int] = {}
    depth: dict[int, int] = {}
    limit = 24 if limits.software else 60
    reads: dict[int, frozenset[int]] = {}
    for node in order:
        _keep_within_bindings(node, stored, reads, limits)
        # A packed table is smaller than its values, so that they are computed by every reader.
        if node.op in LEAVES or node.op in ("literal", "dequantize"):
            cost[id(node)] = 0 if node.op == "constant" else _LOAD
            depth[id(node)] = 0
            continue
        own = _COST.get(node.op, 1) + sum(
            _LOAD if id(x) in stored else cost[id(x)] for x in node.inputs
        )
        deep = 1 + max((0 if id(x) in stored else depth[id(x)] for x in node.inputs), default=0)
        cost[id(node)], depth[id(node)] = min(own, 10**6), deep
        if id(node) in stored or id(node) in scored:
            continue
        readers = consumers[id(node)]
        again = own - _LOAD
        many = len(readers) > 1 and again * (len(readers) - 1) > limit
        widened = again >= 12 and any(
            r.size >= 8 * max(node.size, 1) and REGISTRY[r.op].kind != "reduction" for r in readers
        )
        if many or widened or deep > _DEEPEST:
            stored[id(node)] = node
    return stored


def _kept_operands(node: Node) -> tuple[Node, ...]:
    """The operands that a template reads again and again."""
    if node.op.startswith("fused_"):  # a bias is read once for each output
        return node.inputs[:2]
    if node.op == "attend" and len(node.inputs) > 2:  # made of scores that exist in the kernel only
        return node.inputs[1:4]
    return node.inputs


def _keep_within_bindings(
    node: Node, stored: dict[int, Node], reads: dict[int, frozenset[int]], limits: Limits
) -> None:
    """Store operands of `node` that are computed from many tensors, so that no kernel reads more
    of them than the device binds: sums of many branches, steps of a recurrence put together."""
    if node.op in LEAVES or node.op == "literal":
        reads[id(node)] = frozenset() if node.op == "constant" else frozenset((id(node),))
        return

    def needed() -> frozenset[int]:
        sources = (frozenset((id(x),)) if id(x) in stored else reads[id(x)] for x in node.inputs)
        return frozenset().union(*sources)

    own = needed()
    while len(own) > limits.storage_buffers - 2:  # one for the result, one for a neighbour's
        wide = [x for x in node.inputs if id(x) not in stored and len(reads[id(x)]) > 1]
        if not wide:
            break
        x = max(wide, key=lambda x: len(reads[id(x)]))
        stored[id(x)] = x
        own = needed()
    reads[id(node)] = own


def _operand_base(x: Node) -> Node:
    """What a template's operand is a view of; the operand itself where it is no simple view."""
    base, pads, reshapes = x, 0, 0
    while base.op in _VIEWS or widens(base):
        pads += base.op == "pad"
        reshapes += base.op == "reshape"
        base = base.inputs[0]
    if pads > 1 or reshapes > 3 or (base is not x and base.op == "constant"):
        return x
    return base


class Grouping:
    """Drafts of kernels, and which needs which."""

    def __init__(self, graph: Graph, limits: Limits):
        self.graph = graph
        self.limits = limits
        self.stored = stored_nodes(graph, limits)
        self.drafts: list[Draft] = []
        self.owner: dict[int, int] = {}
        self.ancestors: list[int] = []
        self._readers: dict[int, list[int]] = defaultdict(list)
        self._scalars: list[int] = []
        self._roots = {id(n) for n in graph.roots}
        placed = [
            n for n in graph.nodes() if id(n) in self.stored and n.size and not self._is_leaf(n)
        ]
        self._needs = {id(n): depends(n, self.materialised) for n in placed}
        #: Stored nodes that are computed from a stored node.
        self._users: dict[int, list[int]] = defaultdict(list)
        for node in placed:
            for x in self._needs[id(node)]:
                self._users[id(x)].append(id(node))
        for node in placed:
            self._place(node)

    def _is_leaf(self, node: Node) -> bool:
        return node.op in ("input", "state", "literal")

    def materialised(self, node: Node) -> bool:
        return id(node) in self.stored or self._is_leaf(node)

    def _place(self, node: Node) -> None:
        needs = self._needs[id(node)]
        needed = [self.owner[id(x)] for x in needs if id(x) in self.owner]
        kind = REGISTRY[node.op].kind
        why = dict.fromkeys(needed, f"{node.op} reads its operands again and again, from memory")
        if kind != "template":
            for d in self._candidates(node, needed, needs, kind):
                if not self._acyclic(d, needed):
                    why[d] = "a kernel between the two needs the one and is needed by the other"
                elif self.drafts[d].try_add(node, self._hidden(d, node)):
                    self._join(d, node, needed)
                    self.drafts[d].needs.update(id(x) for x in needs)
                    for x in needs:
                        self._readers[id(x)].append(d)
                    return
                else:
                    why[d] = self.drafts[d].refusal
        make: type[Draft] = {"template": TemplateDraft, "reduction": RowDraft}.get(kind, MapDraft)
        make = AttendDraft if node.op == "attend" else make
        draft = make(node, self.limits, self.materialised)
        draft.write()
        draft.needs.update(id(x) for x in needs)
        draft.apart = [(x, why[self.owner[id(x)]]) for x in needs if id(x) in self.owner]
        self._check(draft)
        self.drafts.append(draft)
        d = len(self.drafts) - 1
        bits = 0
        for other in needed:
            bits |= self.ancestors[other] | 1 << other
        self.ancestors.append(bits)
        self.owner[id(node)] = d
        for x in needs:
            self._readers[id(x)].append(d)
        if kind not in ("template", "reduction") and node.size == 1:
            self._scalars.append(d)

    def _check(self, draft: Draft) -> None:
        if len(draft.bindings.nodes) > self.limits.storage_buffers:
            node = draft.outputs[0]
            raise ValueError(
                f"{node.op} of shape {node.shape} (layer {node.scope!r}) reads {len(draft.bindings.nodes)} tensors "
                f"at once, and the device offers {self.limits.storage_buffers}"
            )

    def _candidates(self, node: Node, needed: list[int], needs: list[Node], kind: str) -> list[int]:
        """Drafts to try, the nearest first."""
        found: dict[int, None] = {}
        for d in sorted(needed, reverse=True):
            found[d] = None
        # Those that read the same, or what was made beside it: sums of parts, each of its own.
        beside = [n for d in needed for n in self.drafts[d].outputs] if kind == "reduction" else []
        siblings = sorted(
            {d for x in (*needs, *beside) for d in self._readers[id(x)]}, reverse=True
        )
        for d in siblings[:8]:
            draft = self.drafts[d]
            same = draft.kind == "row" if kind == "reduction" else draft.kind == "map"
            if same:
                found[d] = None
        if kind != "reduction" and node.size == 1 and self._scalars:
            found[self._scalars[-1]] = None
        return list(found)[:12]

    def _acyclic(self, d: int, needed: list[int]) -> bool:
        return not any(x != d and self.ancestors[x] >> d & 1 for x in needed)

    def _join(self, d: int, node: Node, needed: list[int]) -> None:
        self.owner[id(node)] = d
        bits = self.ancestors[d]
        for x in needed:
            if x != d:
                bits |= self.ancestors[x] | 1 << x
        self.ancestors[d] = bits
        for e in range(len(self.drafts)):
            if self.ancestors[e] >> d & 1:
                self.ancestors[e] |= bits

    def finished(self) -> list[Draft]:
        """The drafts, complete, each after those it needs."""
        for draft in self.drafts:
            draft.complete()
        position = sorted(
            range(len(self.drafts)), key=lambda d: (bin(self.ancestors[d]).count("1"), d)
        )
        return [self.drafts[d] for d in position]

    def _hidden(self, d: int, node: Node) -> frozenset[int]:
        """What kernel d need not store once it computes `node` too."""
        own = {id(n) for n in (*self.drafts[d].outputs, node)}
        return frozenset(
            n for n in own if n not in self._roots and all(u in own for u in self._users[n])
        )

"""What `compile` was given, made into losses and metrics for every output, with Keras's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura import losses as losses_module
from meganeura import metrics as metrics_module
from meganeura import ops
from meganeura.identifiers import suggestion
from meganeura.ops.dispatch import map_tree


def flat(tree: Any) -> list[Any]:
    """The leaves of a structure in order; dicts by their own order."""
    found: list[Any] = []
    map_tree(found.append, tree)
    return found


def per_output(value: Any, outputs: Any, names: list[str] | None, what: str) -> list[Any]:
    """One entry per output: from a list, from a dict by name, nested as the outputs are, or the same for all."""
    count = len(flat(outputs))
    if (nested := _alongside(value, outputs)) is not None and what != "compile: metrics":
        return nested
    if isinstance(value, dict):
        keys = list(outputs) if isinstance(outputs, dict) else (names or [])
        unknown = [k for k in value if k not in keys]
        if unknown:
            raise ValueError(
                f"{what}: there is no output {unknown[0]!r}{suggestion(unknown[0], keys)}"
            )
        return [value.get(k) for k in keys]
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise ValueError(f"{what} has {len(value)} entries for {count} outputs")
        return list(value)
    return [value] * count


def _alongside(value: Any, outputs: Any) -> list[Any] | None:
    """The entries of a structure that is nested as the outputs are; None where it is not, or holds no other."""
    if not isinstance(value, (list, tuple, dict)):
        return None
    if isinstance(outputs, dict) and isinstance(value, dict) and set(value) <= set(outputs):
        parts = [(value.get(k), o) for k, o in outputs.items()]
    elif isinstance(outputs, (list, tuple)) and isinstance(value, (list, tuple)):
        if len(value) != len(outputs):
            return None
        parts = list(zip(value, outputs, strict=True))
    elif not isinstance(outputs, (list, tuple, dict)) and isinstance(value, (list, tuple)):
        return [value[0]] if len(value) == 1 else None  # one output, whose entry stands in a list
    else:
        return None
    found: list[Any] = []
    for entry, output in parts:
        inner = _alongside(entry, output)
        if inner is None:
            if isinstance(entry, (list, tuple, dict)):
                return None
            inner = [entry] * len(flat(output))
        found += inner
    return found


def ordered(tree: Any, like: Any, names: list[str] | None) -> list[Any]:
    """Targets or weights in the order of the outputs: by name from a dict, else by position."""
    count = len(flat(like))
    if tree is None:
        raise ValueError(
            "losses and metrics compare outputs with targets, and there are none: y is None"
        )
    if isinstance(tree, dict):
        keys = list(like) if isinstance(like, dict) else (names or [])
        if set(tree) == set(keys) and keys:
            return [tree[k] for k in keys]
        if len(tree) == count:
            return list(tree.values())
        raise ValueError(f"the data have the names {list(tree)}, and the outputs {keys}")
    leaves = flat(tree)
    if len(leaves) != count:
        raise ValueError(f"{count} output(s), and {len(leaves)} target(s) were given")
    return leaves


class CompileLoss:
    """The losses of all outputs, their weighted sum, and a running mean of each."""

    def __init__(self, loss: Any, weights: Any, names: list[str] | None):
        self.given = loss
        self.weights_given = weights
        self.names = names
        self._check(loss)
        self.losses: list[Any] | None = None
        self.trackers: list[Any] = []

    def _check(self, loss: Any) -> None:
        """Unknown names fail at compile, not at the first batch."""
        if isinstance(loss, dict):
            for value in loss.values():
                self._check(value)
        elif isinstance(loss, (list, tuple)):
            for value in loss:
                self._check(value)
        elif isinstance(loss, str):
            if loss not in ("crossentropy", "ce"):
                losses_module.get(loss)
        elif loss is not None and not callable(loss):
            raise ValueError(f"compile: loss {loss!r} is neither a name, a function, nor a Loss")

    #: whether there is anything to compute
    wanted = True

    def prepare(self, y_true: list[Any], y_pred: Any) -> None:
        """Resolve names by the shapes, at the first batch."""
        if self.losses is not None:
            return
        outputs = flat(y_pred)
        given = per_output(self.given, y_pred, self.names, "compile: loss")
        self.losses = [_loss(g, t, p) for g, t, p in zip(given, y_true, outputs, strict=True)]
        if self.weights_given is None:
            self.weights = [1.0] * len(outputs)
        else:
            chosen = per_output(self.weights_given, y_pred, self.names, "compile: loss_weights")
            self.weights = [1.0 if w is None else float(w) for w in chosen]
        if sum(fn is not None for fn in self.losses) > 1:
            keys = list(y_pred) if isinstance(y_pred, dict) else self.names
            keys = keys or [f"output_{i}" for i in range(len(outputs))]
            self.trackers = [
                metrics_module.Mean(name=f"{k}_loss") if fn is not None else None
                for k, fn in zip(keys, self.losses, strict=True)
            ]

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any, batch: float) -> Any:
        targets = ordered(y_true, y_pred, self.names)
        outputs = flat(y_pred)
        self.prepare(targets, y_pred)
        assert self.losses is not None
        weights = _weights(sample_weight, y_pred, self.names)
        total: Any = None
        for i, (fn, t, p, w) in enumerate(zip(self.losses, targets, outputs, weights, strict=True)):
            if fn is None:
                continue
            value = fn(t, p, w)
            if value.shape:
                value = ops.mean(value)
            if self.trackers:
                self.trackers[i].update_state(value, sample_weight=batch)
            value = value if self.weights[i] == 1.0 else value * self.weights[i]
            total = value if total is None else total + value
        if total is None:
            raise ValueError("no loss was given for any output; pass loss= to compile()")
        return total


def _weights(sample_weight: Any, y_pred: Any, names: list[str] | None) -> list[Any]:
    """Sample weights for each output; one array is for all."""
    count = len(flat(y_pred))
    if sample_weight is None:
        return [None] * count
    given = flat(sample_weight)
    return given * count if len(given) == 1 else ordered(sample_weight, y_pred, names)


def _loss(given: Any, y_true: Any, y_pred: Any) -> Any:
    if given is None:
        return None
    if given in ("crossentropy", "ce"):
        given = _kind(y_true, y_pred) + "_crossentropy"
    chosen = losses_module.get(given)
    if isinstance(chosen, losses_module.Loss):
        return chosen
    assert chosen is not None
    name = getattr(chosen, "__name__", "loss")
    return losses_module.LossFunctionWrapper(chosen, name=name)


def _kind(y_true: Any, y_pred: Any) -> str:
    """binary, sparse_categorical or categorical, by the shapes."""
    if y_pred.shape[-1] == 1:
        return "binary"
    if len(y_true.shape) < len(y_pred.shape) or y_true.shape[-1] == 1:
        return "sparse_categorical"
    return "categorical"


_BY_KIND = {
    "accuracy": {
        "binary": "BinaryAccuracy",
        "sparse_categorical": "SparseCategoricalAccuracy",
        "categorical": "CategoricalAccuracy",
    },
    "crossentropy": {
        "binary": "BinaryCrossentropy",
        "sparse_categorical": "SparseCategoricalCrossentropy",
        "categorical": "CategoricalCrossentropy",
    },
}
_BY_KIND["acc"] = _BY_KIND["accuracy"]
_BY_KIND["ce"] = _BY_KIND["crossentropy"]


class CompileMetrics:
    """The metrics of all outputs, unweighted and weighted."""

    def __init__(self, metrics: Any, weighted: Any, names: list[str] | None):
        self.given = (metrics, weighted)
        self.names = names
        for value in self.given:
            self._check(value)
        #: (output index, metric, uses sample weights)
        self.entries: list[tuple[int, Any, bool]] | None = None
        self.keys: dict[int, str] = {}

    def _check(self, value: Any) -> None:
        if isinstance(value, dict):
            for v in value.values():
                self._check(v)
        elif isinstance(value, (list, tuple)):
            for v in value:
                self._check(v)
        elif isinstance(value, str) and value not in _BY_KIND:
            metrics_module.get(value)

    @property
    def wanted(self) -> bool:
        """Whether there is anything to compute."""
        return any(value is not None and value != [] for value in self.given)

    @property
    def metrics(self) -> list[Any]:
        return [m for _, m, _ in self.entries or []]

    def prepare(self, y_true: list[Any], y_pred: Any) -> None:
        """Resolve names by the shapes, at the first batch."""
        if self.entries is not None:
            return
        outputs = flat(y_pred)
        many = len(outputs) > 1
        keys = list(y_pred) if isinstance(y_pred, dict) else self.names
        keys = keys or [f"output_{i}" for i in range(len(outputs))]
        self.entries = []
        used: dict[str, int] = {}
        for value, weighted in zip(self.given, (False, True), strict=True):
            for i, wanted in enumerate(self._lists(value, y_pred, len(outputs))):
                for one in wanted:
                    metric, name = _metric(one, y_true[i], outputs[i])
                    if any(metric is m for _, m, _ in self.entries):
                        raise ValueError(
                            f"compile: metric {name!r} is listed twice; make two objects"
                        )
                    prefix = f"{keys[i]}_" if many else ""
                    key = prefix + name
                    if weighted and key in used:
                        key = f"{prefix}weighted_{name}"
                    count = used.get(key, 0)
                    used[key] = count + 1
                    self.keys[id(metric)] = f"{key}_{count}" if count else key
                    self.entries.append((i, metric, weighted))

    def _lists(self, value: Any, y_pred: Any, count: int) -> list[list[Any]]:
        if value is None:
            return [[]] * count
        if isinstance(value, dict):
            return [_listed(v) for v in per_output(value, y_pred, self.names, "compile: metrics")]
        if not isinstance(value, (list, tuple)):
            return [[value]] * count
        if count == 1:
            nested = len(value) == 1 and isinstance(value[0], (list, tuple))
            return [_listed(value[0] if nested else value)]
        if len(value) != count:
            raise ValueError(
                f"compile: metrics has {len(value)} entries for {count} outputs; a list has one entry "
                "(a metric, or a list of them) for each, a dict goes by their names"
            )
        return [_listed(v) for v in value]

    def update(self, y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        targets, outputs = ordered(y_true, y_pred, self.names), flat(y_pred)
        self.prepare(targets, y_pred)
        weights = _weights(sample_weight, y_pred, self.names)
        for i, metric, weighted in self.entries or []:
            # Metrics that are means over samples look at the mask of the output themselves.
            weight = weights[i] if weighted else None
            metric.update_state(targets[i], outputs[i], sample_weight=weight)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _metric(given: Any, y_true: Any, y_pred: Any) -> tuple[Any, str]:
    if isinstance(given, str):
        if given in _BY_KIND:
            name = _BY_KIND[given][_kind(y_true, y_pred)]
            return getattr(metrics_module, name)(name=given), given
        found = metrics_module.get(given)
        if not isinstance(found, metrics_module.Metric):
            found = metrics_module.MeanMetricWrapper(found, name=given)
        found.name = given  # as the logs call it
        return found, given
    if isinstance(given, metrics_module.Metric):
        return given, given.name
    if isinstance(given, losses_module.Loss):
        return metrics_module.MeanMetricWrapper(given.call, name=given.name), given.name
    if callable(given):
        function: Callable[..., Any] = given
        name = getattr(function, "__name__", "metric")
        return metrics_module.MeanMetricWrapper(function, name=name), name
    raise ValueError(f"compile: metric {given!r} is neither a name, a function, nor a Metric")

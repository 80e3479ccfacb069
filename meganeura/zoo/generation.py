"""Continuing texts token by token: a cache of keys and values, one plan for each token."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meganeura import config, ops
from meganeura.backend import backend_object
from meganeura.execution import compiled
from meganeura.graph.trace import Trace
from meganeura.layers import calling
from meganeura.layers.decoding import Decoding
from meganeura.layers.positions import PositionEmbedding
from meganeura.models import Functional
from meganeura.models.operation import flatten
from meganeura.utils import register_keras_serializable
from meganeura.variable import Variable
from meganeura.zoo.sampling import Sampling, next_tokens
from meganeura.zoo.texts import Tokenizer

#: Room in caches comes in steps of this many tokens, so that texts of like lengths share a plan.
ROOM = 128


@register_keras_serializable("meganeura")
class LanguageModel(Functional):
    """A functional model from token ids to logits (batch, length, vocabulary), which can `generate`."""

    #: Where its files are, for its tokenizer; `from_pretrained` says it.
    folder: Path | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the folder that the model came from. Raises ValueError where it came from none."""
        if self.folder is None:
            raise ValueError(
                f"model {self.name!r} came from no folder, so it has no tokenizer; give it whole numbers"
            )
        found: Tokenizer | None = self.__dict__.get("_tokenizer")
        if found is None:
            found = Tokenizer(self.folder)
            object.__setattr__(self, "_tokenizer", found)
        return found

    def generate(
        self,
        tokens: Any,
        max_new_tokens: int = 20,
        *,
        inputs: Mapping[str, Any] | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop_tokens: int | Iterable[int] = (),
        pad_token: int = 0,
        callback: Callable[[np.ndarray], Any] | None = None,
        tokens_per_submission: int | None = None,
    ) -> Any:
        """Continue texts: the most likely token each time, or one that is drawn.

        tokens:      one text (a list or 1-D array), or several: a list of them, which may differ in
                     length, or a 2-D array; of a model `from_pretrained` also a string, which its
                     tokenizer reads, and then a string comes back and the folder's stop tokens hold
        inputs:      the model's other inputs by name, such as the features that a decoder listens to
        temperature: 0 takes the most likely token; otherwise logits are divided by it and a token is
                     drawn, of the `top_k` most likely, of the fewest that hold `top_p` of the probability
        repetition_penalty: logits of tokens that the text has already are divided by it where they
                     are positive, and multiplied where not (arXiv 1909.05858)
        seed:        equal seeds draw equal texts; None takes one from Python's generator
        stop_tokens: a text ends with the first of these
        callback:    called with the new tokens (batch, count) as they come, `pad_token` behind an end;
                     it ends the generation by returning True
        tokens_per_submission: how many tokens the device makes before they are looked at: 1 with a
                     callback, otherwise 16

        Returns texts with what was added: for one text its array, for a 2-D array an array, filled up
        with `pad_token`, for a list a list of arrays. Raises ValueError for an empty prompt and for settings
        that make no sense.
        """
        if isinstance(tokens, str):
            own = {
                name: value for name, value in locals().items() if name not in ("self", "tokens")
            }
            own["stop_tokens"] = stop_tokens or self.tokenizer.stop_tokens
            return self.tokenizer.decode(self.generate(self.tokenizer.encode(tokens), **own))
        rows, form = _prompts(tokens)
        count = _whole("max_new_tokens", max_new_tokens, 1)
        chunk = _whole("tokens_per_submission", tokens_per_submission or (1 if callback else 16), 1)
        stops = (stop_tokens,) if isinstance(stop_tokens, int) else tuple(stop_tokens)
        sampling = Sampling.of(temperature, top_k, top_p, repetition_penalty)
        longest = max(len(row) for row in rows)
        capacity = -(-(longest + count) // ROOM) * ROOM
        limit = _positions(self)
        if limit is not None and longest + count > limit:
            raise ValueError(
                f"model {self.name!r} knows {limit} positions, and a prompt of {longest} tokens with "
                f"{count} more needs {longest + count}"
            )
        session = self._session(len(rows), capacity, sampling, len(stops))
        session.start(rows, inputs or {}, seed, stops, pad_token)
        given = 0
        while given < count:
            steps = min(chunk, count - given)
            session.advance(steps if given else steps - 1)
            if callback is not None or stops:
                new, ended = session.read(given, given + steps)
                given += steps
                if (callback is not None and callback(new)) or ended:
                    break
            else:
                given += steps
        return _texts(rows, session.read(0, given)[0], stops, pad_token, form)

    def _forget_steps(self) -> None:
        super()._forget_steps()
        object.__setattr__(self, "_generation", None)

    def _session(self, batch: int, capacity: int, sampling: Sampling, stops: int) -> Session:
        """The caches and plans of this kind of generation: the last one, where it fits."""
        key = (batch, capacity, sampling.kind, stops, config.optimize(), id(backend_object()))
        kept = self.__dict__.get("_generation")
        if kept is None or kept[0] != key:
            object.__setattr__(self, "_generation", None)  # the old caches go before new ones come
            kept = (key, Session(self, batch, capacity, sampling, stops))
            object.__setattr__(self, "_generation", kept)
        session: Session = kept[1]
        session.set(sampling)
        return session


class Session:
    """Caches, and the plans that read prompts and make tokens, for one number of rows and one capacity."""

    def __init__(self, model: Any, batch: int, capacity: int, sampling: Sampling, stops: int):
        self.model = model
        self.batch = batch
        self.capacity = capacity
        self.decoding = Decoding(batch, capacity)
        self.names = list(model.input_names)
        if "segments" in self.names:
            raise ValueError(
                f"model {model.name!r} was built with packed=True, to be trained; build it without, and "
                "give it these weights: writer.set_weights(model.get_weights())"
            )
        if "ids" not in self.names:
            raise ValueError(
                f"model {model.name!r} has no input named 'ids' to put tokens into; it has "
                f"{', '.join(map(repr, self.names))}"
            )
        self.sampling = sampling
        vocabulary = int(model.output_shape[-1])

        def state(name: str, shape: tuple[int, ...], dtype: str) -> Variable:
            return Variable(np.zeros(shape, dtype), trainable=False, name=name)

        self.lengths = state("lengths", (batch,), "int32")
        self.made = state("made", (), "int32")
        self.last = state("last", (batch,), "int32")
        self.ended = state("ended", (batch,), "bool")
        self.texts = state("texts", (batch, capacity), "int32")
        self.seed = state("seed", (2,), "uint32")
        self.settings = state("settings", (4,), "float32")
        self.pad = state("pad", (), "int32")
        self.stops = state("stops", (stops,), "int32") if stops else None
        self.seen = state("seen", (batch, vocabulary), "bool") if sampling.penalised else None
        self._step: Any = None
        self._prompts: dict[int, Any] = {}

    def set(self, sampling: Sampling) -> None:
        self.settings.assign(sampling.numbers())

    @property
    def plans(self) -> int:
        """How many plans there are: one for the step, one for each padded length of prompts."""
        return len(self._prompts) + (self._step is not None)

    # --- what is recorded ------------------------------------------------------------------------

    def _choose(self, logits: Any) -> None:
        """The next token of each row from its logits, and all that follows from it."""
        new = next_tokens(
            logits, self.sampling, self.settings.value, self.seed.value,
            None if self.seen is None else self.seen.value,
        )  # fmt: skip
        new = ops.where(self.ended.value, self.pad.value, new)
        ended = self.ended.value
        if self.stops is not None:
            hit = ops.equal(ops.expand_dims(new, 1), ops.expand_dims(self.stops.value, 0))
            ended = ops.logical_or(ended, ops.any(hit, axis=1))
        if self.seen is not None:
            here = ops.equal(ops.arange(self.seen.shape[1]), ops.expand_dims(new, 1))
            self.seen.assign(ops.logical_or(self.seen.value, here))
        slot = ops.expand_dims(ops.equal(ops.arange(self.capacity), self.made.value), 0)
        self.texts.assign(ops.where(slot, ops.expand_dims(new, 1), self.texts.value))
        self.ended.assign(ended)
        self.last.assign(new)
        self.made.assign(self.made.value + 1)
        self.seed.assign(self.seed.value + np.array([0, 1], "uint32"))

    def _call(self, ids: Any, others: Mapping[str, Any]) -> Any:
        given = {"ids": ids, **others}
        inputs = given if len(self.names) > 1 else ids
        with calling.training_phase(False):
            logits = self.model(inputs)
        return ops.reshape(logits[:, -1], (self.batch, -1))

    def _others(self, trace: Trace, given: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: trace.input(tuple(x.shape), x.dtype, name) for name, x in sorted(given.items())
        }

    def _record_prompts(self, length: int, given: Mapping[str, Any]) -> _Plan:
        with Trace() as trace:
            ids = trace.input((self.batch, length), "int32", "ids")
            counts = trace.input((self.batch,), "int32", "counts")
            others = self._others(trace, given)
            with self.decoding.phase(True, None, counts):
                logits = self._call(ids, others)
            if self.seen is not None:
                # from a list of (row, token) to a table: padding counts for a token of no text
                real = ops.less(ops.arange(length), ops.expand_dims(counts, 1))
                marked = ops.where(real, ids, self.seen.shape[1])
                flat = ops.arange(self.batch * length) // length * (self.seen.shape[1] + 1)
                flat = flat + ops.reshape(marked, (-1,))
                table = ops.segment_sum(
                    ops.ones((self.batch * length,)), flat, self.batch * (self.seen.shape[1] + 1)
                )
                table = ops.reshape(table, (self.batch, -1))[:, : self.seen.shape[1]]
                self.seen.assign(ops.greater(table, 0.0))
            self.lengths.assign(counts)
            self._choose(logits)
        return _Plan(trace)

    def _record_step(self, given: Mapping[str, Any]) -> _Plan:
        with Trace() as trace:
            # Inputs that only prompts need are not there any more; what hangs on them is not computed.
            others = {
                name: ops.zeros(tuple(x.shape), dtype=x.dtype) for name, x in sorted(given.items())
            }
            with self.decoding.phase(False, self.lengths.value):
                logits = self._call(ops.expand_dims(self.last.value, 1), others)
            self.lengths.assign(self.lengths.value + 1)
            self._choose(logits)
        return _Plan(trace)

    # --- running ----------------------------------------------------------------------------------

    def start(
        self,
        rows: Sequence[np.ndarray],
        given: Mapping[str, Any],
        seed: int | None,
        stops: Sequence[int],
        pad: int,
    ) -> None:
        """Read the prompts, and make the first token of each row."""
        from meganeura.random import SeedGenerator
        from meganeura.tensor import to_tensor

        missing = sorted(set(self.names) - {"ids"} - set(given))
        unknown = sorted(set(given) - set(self.names) | set(given) & {"ids"})
        if missing or unknown:
            raise ValueError(
                f"model {self.model.name!r}: generate needs inputs={{{', '.join(map(repr, missing))}}}"
                if missing
                else f"model {self.model.name!r} takes no input {unknown[0]!r} beside its tokens"
            )
        self.given = {name: to_tensor(np.asarray(x)) for name, x in given.items()}
        for name, x in self.given.items():
            if x.shape[0] != self.batch:
                raise ValueError(
                    f"input {name!r} has {x.shape[0]} rows, and there are {self.batch} prompts"
                )
        longest = max(len(row) for row in rows)
        length = min(self.capacity, _rounded(longest))
        ids = np.zeros((self.batch, length), "int32")
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        self.made.assign(0)
        self.ended.assign(np.zeros(self.batch, "bool"))
        self.pad.assign(pad)
        self.seed.assign(SeedGenerator(seed).state.numpy())
        if self.stops is not None:
            self.stops.assign(np.asarray(stops, "int32"))
        counts = np.array([len(row) for row in rows], "int32")
        key = (length, tuple((n, x.shape, x.dtype) for n, x in sorted(self.given.items())))
        if key not in self._prompts:
            self._prompts[key] = self._record_prompts(length, self.given)
        tensors = [to_tensor(ids), to_tensor(counts)]
        tensors += [x for _, x in sorted(self.given.items())]
        self._prompts[key].run([t.handle for t in tensors])

    def advance(self, count: int) -> None:
        """Make `count` more tokens of each row, without looking at them."""
        if count:
            if self._step is None:
                self._step = self._record_step(self.given)
            self._step.run_many(count)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, bool]:
        """The new tokens of these numbers, (batch, stop - start), and whether every row has ended."""
        texts, ended = backend_object().download_many(
            [(v.handle, v.shape, v.dtype) for v in (self.texts, self.ended)]
        )
        return texts[:, start:stop].copy(), bool(ended.all())


class _Plan:
    """A recorded graph without outputs: it reads and writes variables."""

    def __init__(self, trace: Trace):
        self._captured = list(trace.captured)
        self._variables = list(trace.variables)
        self.executable = compiled(trace.graph([]))

    def run(self, inputs: Sequence[Any]) -> None:
        handles = [*inputs, *(t.handle for t in self._captured)]
        self.executable.run(handles, [v.handle for v in self._variables])

    def run_many(self, count: int) -> None:
        handles = [t.handle for t in self._captured]
        self.executable.run_many(handles, [v.handle for v in self._variables], count)


def _positions(model: Any) -> int | None:
    """How many positions the model has learnt for its tokens, None where they are computed."""
    of_text = {id(t) for t in model.inputs if t.history and t.history[0].name == "ids"}
    known = []
    for node in model._calls:
        if any(id(t) in of_text for t in node.inputs):
            of_text.update(id(t) for t in flatten(node.outputs))
            if isinstance(node.operation, PositionEmbedding):
                known.append(node.operation.sequence_length)
    return min(known, default=None)


def _rounded(length: int) -> int:
    """A length that prompts are padded to: at most a quarter more, so that there are few plans."""
    step = max(16, (1 << (length - 1).bit_length()) // 8)
    return -(-length // step) * step


def _whole(name: str, value: Any, low: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number < low:
        raise ValueError(
            f"generate: {name} must be a whole number of at least {low}, got {value!r}"
        )
    return number


def _prompts(tokens: Any) -> tuple[list[np.ndarray], str]:
    """The prompts as arrays, and what they came as: one, an array, a list."""
    if hasattr(tokens, "shape"):
        array = np.asarray(tokens)
        form = {1: "one", 2: "array"}.get(array.ndim, "")
        rows = [array] if form == "one" else list(array)
    else:
        items = list(tokens)
        nested = bool(items) and (hasattr(items[0], "shape") or isinstance(items[0], (list, tuple)))
        nested = nested and np.ndim(items[0]) == 1
        form, rows = (
            ("list", [np.asarray(r) for r in items]) if nested else ("one", [np.asarray(items)])
        )
    whole = all(r.ndim == 1 and len(r) and np.issubdtype(r.dtype, np.integer) for r in rows)
    if not form or not rows or not whole:
        raise ValueError(
            "generate: tokens are whole numbers, at least one for each text: a list of them, a list of "
            f"such lists or an array of one or two dimensions; got {type(tokens).__name__} "
            f"with the shapes {[r.shape for r in rows][:4]}"
        )
    return [r.astype("int32") for r in rows], form


def _texts(
    rows: list[np.ndarray], new: np.ndarray, stops: Sequence[int], pad: int, form: str
) -> Any:
    """Prompts and what was added, up to the first stop token of each."""
    texts = []
    for row, added in zip(rows, new, strict=True):
        ends = np.flatnonzero(np.isin(added, stops))
        texts.append(np.concatenate([row, added[: ends[0] + 1] if len(ends) else added]))
    if form == "one":
        return texts[0]
    if form == "list":
        return texts
    longest = max(len(t) for t in texts)
    return np.stack([np.pad(t, (0, longest - len(t)), constant_values=pad) for t in texts])

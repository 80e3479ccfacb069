"""fit, evaluate, predict (https://keras.io/api/models/model_training_apis)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import config
from meganeura.backend import backend_object
from meganeura.callbacks.lists import CallbackList
from meganeura.data import checks, sources
from meganeura.data.batch import Batch, Source, pack, unpack
from meganeura.data.streams import Stream
from meganeura.models import loops
from meganeura.models.compile_utils import flat, ordered, per_output
from meganeura.models.steps import Logs, Pace, Recording, Step
from meganeura.models.training_step import TrainingStep
from meganeura.quantization.variable import refuse_packed

#: Steps of one kind after which the user hears that each shape of batch costs one.
_MANY_SHAPES = 32


class Trainer(TrainingStep):
    """The training half of a Model: runs its steps over data."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_training = False
        self.history: Any = None
        self._steps: dict[Any, tuple[Step, Logs]] = {}
        self._last_step: dict[str, Step] = {}
        self._checks: dict[Any, Callable[[Any], None] | None] = {}
        self._initial_epoch: int | None = None  # set by BackupAndRestore

    # --- compiled steps ------------------------------------------------------------------------

    def _forget_steps(self) -> None:
        super()._forget_steps()
        self.stop_training = False
        self._steps.clear()
        self._checks.clear()

    def _let_go(self) -> None:
        """Forget all that was recorded, so that nothing holds variables that layers have replaced."""
        self._forget_steps()
        self._last_step.clear()

    def _fingerprint(self) -> Any:
        """What compiled steps depend on besides the batch: the weights, which are trained, at what kind of rate."""
        weights = tuple((id(w), w.trainable) for w in self.weights)  # type: ignore[attr-defined]
        rate = getattr(self.optimizer, "_learning_rate", None)
        trained = self.trainable, weights  # type: ignore[attr-defined]
        return id(self.optimizer), id(rate), trained, config.optimize(), id(backend_object())

    def _step(self, kind: str, batch: Batch, fingerprint: Any) -> tuple[Step, Logs]:
        """The compiled step for batches like this one, made at first need, and where its logs are."""
        key = (kind, batch.key, fingerprint)
        found = None if self.run_eagerly else self._steps.get(key)
        if found is None:
            entries: list[tuple[str, Any]] = []
            method = getattr(self, f"{kind}_step")

            def body(data: Any) -> Any:
                returned = method(pack(data))
                if kind == "predict":
                    return returned
                entries.extend(self._log_entries(kind, returned))
                return None

            try:
                step = Step(body, batch, self.run_eagerly)
            finally:
                self._recorded.clear()
            found = (step, self._logs(entries))
            if not self.run_eagerly:
                self._steps[key] = found
                self._tell_of_many_shapes(kind)
        last = self._last_step.get(kind)
        if last is None or last.size <= batch.size:  # what explain() shows: no partial batch
            self._last_step[kind] = found[0]
        return found

    def _tell_of_many_shapes(self, kind: str) -> None:
        if sum(k[0] == kind for k in self._steps) == _MANY_SHAPES:
            shapes = dict.fromkeys(
                step.shapes for (k, *_), (step, _) in self._steps.items() if k == kind
            )
            listed = "; ".join(" and ".join(map(str, some)) for some in list(shapes)[-4:])
            warnings.warn(
                f"model {self.name!r} has compiled {_MANY_SHAPES} {kind} steps, one for each shape of "
                f"batch (the last ones: {listed}); pad the data to a few lengths, so that steps can be used "
                "again, for instance with utils.pad_sequences(..., buckets=(32, 64, 128))"
            )

    def make_train_function(self, force: bool = False) -> None:
        """Forget compiled steps where `force` is set; they are made again at need."""
        if force:
            self._forget_steps()

    make_test_function = make_predict_function = make_train_function

    def _last_executable(self) -> Any:
        for kind in ("train", "test", "predict"):
            if kind in self._last_step:
                return self._last_step[kind].executable
        return None

    # --- before the first step -----------------------------------------------------------------

    def _prepare(self, source: Source, kind: str) -> None:
        """Make all variables, and hold the targets against the outputs, before anything is computed."""
        batch = source.peek()
        if batch is None:
            raise ValueError("there are no samples: the data are empty")
        key = (kind, batch.key)
        if key not in self._checks:
            self._checks[key] = self._rehearse(batch, kind)
        if kind == "train":
            refuse_packed(self.trainable_variables)  # type: ignore[attr-defined]
        if kind == "train" and self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]
        check = self._checks[key]
        if check is not None:
            check(source.targets)
            source.check = check

    def _rehearse(self, batch: Batch, kind: str) -> Callable[[Any], None] | None:
        """Call the model on a batch, for its variables and the shapes of its outputs."""
        own_step = self._overrides(f"{kind}_step")
        layers = self._flatten_layers(include_self=False)  # type: ignore[attr-defined]
        built = all(layer.built for layer in layers)
        metrics = self._compile_metrics
        unresolved = metrics is not None and metrics.wanted and metrics.entries is None
        if own_step and built and not unresolved:
            return None
        with Recording(batch, self.run_eagerly) as recording:
            x, y, _ = recording.data
            try:
                y_pred = self(x, training=kind == "train")  # type: ignore[operator]
                if own_step and unresolved and y is not None and metrics is not None:
                    # so that a step that updates self.metrics one by one finds those of compile
                    metrics.prepare(ordered(y, y_pred, self._compile_names()), y_pred)
            except NotImplementedError:
                if own_step:  # a model that is nothing but its steps
                    return None
                raise
            except Exception:
                # Steps of one's own may call the model in other ways; they say themselves what is wrong.
                if own_step and built:
                    return None
                raise
            if kind == "predict" or own_step or self._overrides("compute_loss", "compute_metrics"):
                return None
            compiled = [c for c in (self._compile_loss, self._compile_metrics) if c and c.wanted]
            if compiled:
                targets = ordered(y, y_pred, self._compile_names())
                for one in compiled:
                    one.prepare(targets, y_pred)
        return self._target_check(y_pred)

    def _target_check(self, y_pred: Any) -> Callable[[Any], None] | None:
        if self._compile_loss is None:
            return None
        names = self._compile_names()
        given = per_output(self._compile_loss.given, y_pred, names, "compile: loss")
        named = names or [f"output_{i}" for i in range(len(given))]
        shapes = [(None, *p.shape[1:]) if p.shape else () for p in flat(y_pred)]
        check = checks.TargetCheck(list(zip(named, given, shapes, strict=True)))
        return lambda y: check(ordered(y, y_pred, names))

    def _source(self, data: tuple[Any, Any, Any], batch_size: Any, **options: Any) -> Source:
        size = checks.positive(batch_size, "batch_size")
        return sources.make(*data, batch_size=size, **options)

    # --- fit -----------------------------------------------------------------------------------

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: dict[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> Any:
        """Train on arrays, a PyDataset, a generator, or any iterable of batches. Returns the History.

        x, y, sample_weight: arrays of N samples, or structures of them; a data set brings all three
        batch_size:          32 where it is not given
        validation_split:    the last fraction of the arrays validates; it is taken before shuffling
        steps_per_epoch:     an epoch may end before the data do; the next goes on from there
        validation_freq:     validate every so many epochs, or after the epochs of a list

        Arrays that fit stay on the device, where each step gathers its own batch. Raises ValueError
        where counts, shapes or labels do not fit.
        """
        self._assert_compiled("fit")
        epochs = _count(epochs, "epochs")
        initial_epoch = _count(initial_epoch, "initial_epoch")
        steps_per_epoch = checks.positive(steps_per_epoch, "steps_per_epoch")
        validation_steps = checks.positive(validation_steps, "validation_steps")
        if class_weight is not None and sample_weight is not None:
            raise ValueError("fit takes class_weight or sample_weight, not both")
        if validation_split and validation_data is None:
            if not (isinstance(x, list) or sources.is_array_like(x)):
                raise ValueError(
                    "validation_split is for arrays; give validation_data with a generator or data set"
                )
            names = ("x", "y", "sample_weight")
            x, y, sample_weight = (
                checks.as_arrays(v, n) for v, n in zip((x, y, sample_weight), names, strict=True)
            )
            train, validation_data = checks.split(x, y, sample_weight, validation_split)
            x, y, sample_weight = train
        due = _schedule(validation_freq)
        source = self._source((x, y, sample_weight), batch_size, shuffle=bool(shuffle),
            class_weight=class_weight,
        )  # fmt: skip
        validation = None
        if validation_data is not None:
            if not _is_dataset(validation_data):
                validation_data = unpack(tuple(validation_data))
                if validation_batch_size is None:
                    validation_batch_size = batch_size
            else:
                validation_data = (validation_data, None, None)
            validation = self._source(validation_data, validation_batch_size)
        self.stop_training = False
        try:
            self._prepare(source, "train")
            if validation is not None:
                self._prepare(validation, "test")
            steps = source.batches if steps_per_epoch is None else steps_per_epoch
            listed = CallbackList(
                callbacks, add_history=True, add_progbar=True, model=self, verbose=verbose,
                epochs=epochs, steps=steps,
            )  # fmt: skip
            self._train(
                source, validation, listed, range(initial_epoch, epochs), steps_per_epoch,
                validation_steps, due,
            )  # fmt: skip
        finally:
            source.close()
            if validation is not None:
                validation.close()
        return self.history

    def _train(
        self,
        source: Source,
        validation: Source | None,
        listed: CallbackList,
        epochs: range,
        limit: int | None,
        validation_steps: int | None,
        due: Callable[[int], bool],
    ) -> None:
        logs: dict[str, Any] = {}
        pace = Pace()
        self._initial_epoch = None
        listed.on_train_begin()
        if self._initial_epoch is not None:
            epochs = range(max(self._initial_epoch, epochs.start), epochs.stop)
        told = False
        for epoch in epochs:
            self.reset_metrics()
            listed.on_epoch_begin(epoch)
            logs = loops.train_epoch(self, source, limit, listed, pace).read()
            if not told and not _finite(logs.get("loss")):
                told = True
                warnings.warn(_advice(epoch, logs["loss"], source.find_nan()))
            if validation is not None and due(epoch):
                values, _ = loops.evaluate(self, validation, validation_steps, listed)
                logs.update({f"val_{k}": v for k, v in values.items()})
            logs = dict(sorted(logs.items()))
            listed.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        if len(epochs) and self.optimizer is not None and self.optimizer.built:
            self.optimizer.finalize_variable_values(self.trainable_variables)  # type: ignore[attr-defined]
        listed.on_train_end(logs)

    # --- evaluate and predict ------------------------------------------------------------------

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """The loss and the metrics on data: a float where there is only the loss, a list with the loss
        first, or with `return_dict` a dict."""
        self._assert_compiled("evaluate")
        steps = checks.positive(steps, "steps")
        source = self._source((x, y, sample_weight), batch_size)
        try:
            self._prepare(source, "test")
            listed = CallbackList(
                callbacks, add_progbar=True, model=self, verbose=verbose, epochs=1,
                steps=steps or source.batches,
            )  # fmt: skip
            values, _ = loops.evaluate(self, source, steps, listed)
        finally:
            source.close()
        return self._results(values, return_dict)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """The outputs for all samples, as NumPy arrays in the structure of the model's outputs."""
        steps = checks.positive(steps, "steps")
        source = self._source((x, None, None), batch_size)
        try:
            self._prepare(source, "predict")
            listed = CallbackList(
                callbacks, add_progbar=True, model=self, verbose=verbose, epochs=1,
                steps=steps or source.batches,
            )  # fmt: skip
            return loops.joined(loops.predict(self, source, steps, listed))
        finally:
            source.close()

    def _results(self, values: dict[str, Any], as_dict: bool) -> Any:
        """A sorted dict; or the loss, the losses of the outputs and the rest, which for several
        outputs is sorted by name and else as it was compiled."""
        if as_dict:
            return dict(sorted(values.items()))
        names = list(values)
        trackers = self._compile_loss.trackers if self._compile_loss is not None else []
        if trackers:
            first = ["loss", *(t.name for t in trackers if t is not None)]
            names = [n for n in first if n in values] + sorted(n for n in names if n not in first)
        listed = [values[n] for n in names]
        return listed[0] if len(listed) == 1 else listed

    # --- single batches ------------------------------------------------------------------------

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: dict[int, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """One step on one batch; the values are those of this batch alone."""
        self._assert_compiled("train_on_batch")
        if class_weight is not None and sample_weight is not None:
            raise ValueError("train_on_batch takes class_weight or sample_weight, not both")
        logs = self._one("train", (x, y, sample_weight), class_weight)[1]
        return self._results(logs.read(), return_dict)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """The loss and metrics of one batch."""
        self._assert_compiled("test_on_batch")
        logs = self._one("test", (x, y, sample_weight), None)[1]
        return self._results(logs.read(), return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for one batch, as NumPy arrays."""
        return loops.on_host(self._one("predict", (x, None, None), None)[0])

    def _one(self, kind: str, data: tuple[Any, Any, Any], class_weight: Any) -> tuple[Any, Logs]:
        stream = self.__dict__.setdefault(f"_single_{kind}", Stream([]))
        stream.given = [data]
        stream.class_weight = class_weight
        stream.check = None
        stream.reset()
        self._prepare(stream, kind)
        batch, _ = stream.next(1)
        stream.reset()
        stream.given = []
        return loops.one(self, kind, batch)


def _is_dataset(data: Any) -> bool:
    return not (isinstance(data, (tuple, list)) and data and sources.is_array_like(data[0]))


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, not {value!r}")
    return int(value)


def _schedule(frequency: Any) -> Callable[[int], bool]:
    """Whether to validate after an epoch."""
    if isinstance(frequency, (list, tuple, set)):
        return lambda epoch: epoch + 1 in frequency
    every = checks.positive(frequency, "validation_freq", 1)
    return lambda epoch: (epoch + 1) % every == 0


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _advice(epoch: int, loss: float, found: str | None) -> str:
    cause = (
        found
        or "the data are finite, so a lower learning rate, or clipnorm= for the optimizer, may help"
    )
    return f"the loss of epoch {epoch + 1} is {loss}: {cause}"

"""compile, fit, evaluate, predict (https://keras.io/api/models/model_training_apis)."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura import metrics as metrics_module
from meganeura import ops, optim
from meganeura.callbacks.lists import CallbackList, LazyLogs
from meganeura.data import checks, sources
from meganeura.gradient import value_and_grad
from meganeura.graph import trace
from meganeura.models.compile_utils import CompileLoss, CompileMetrics, flat, ordered
from meganeura.models.steps import Step, batch_key
from meganeura.ops.dispatch import map_tree

#: While nobody looks, this many steps go to the device at a time.
STEPS_AT_ONCE = 16


class Trainer:
    """The training half of a Model."""

    name: str

    def __init__(self) -> None:
        self.compiled = False
        self.optimizer: Any = None
        self.loss: Any = None
        self.stop_training = False
        self.run_eagerly = False
        self.steps_per_execution = 1
        self.jit_compile = "auto"
        self.history: Any = None
        self._compile_loss: CompileLoss | None = None
        self._compile_metrics: CompileMetrics | None = None
        self._compile_arguments: dict[str, Any] = {}
        self._loss_tracker: Any = None
        self._steps: dict[Any, Step] = {}
        self._last_step: dict[str, Step] = {}
        self._checked_targets = False

    # --- compile -------------------------------------------------------------------------------

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: Any = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Choose how to train: optimizer, losses and metrics, by name or as objects.

        loss, metrics:   one for all outputs, a list in their order, or a dict by their names
        run_eagerly:     the step is traced anew for every batch and runs as it is written
        """
        if isinstance(steps_per_execution, bool) or int(steps_per_execution) < 1:
            raise ValueError(f"compile: steps_per_execution must be a positive integer, not {steps_per_execution!r}")
        names = self._names()
        self.optimizer = optim.get(optimizer)
        self._compile_loss = CompileLoss(loss, loss_weights, names) if loss is not None else None
        self._compile_metrics = CompileMetrics(metrics, weighted_metrics, names)
        self._loss_tracker = metrics_module.Mean(name="loss")
        self._compile_arguments = {
            "optimizer": optimizer, "loss": loss, "loss_weights": loss_weights, "metrics": metrics,
            "weighted_metrics": weighted_metrics, "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution, "jit_compile": jit_compile,
        }  # fmt: skip
        self.loss = loss
        self.run_eagerly = bool(run_eagerly)
        self.steps_per_execution = int(steps_per_execution)
        self.jit_compile = jit_compile
        self.stop_training = False
        self.compiled = True
        self._checked_targets = False
        self._steps.clear()

    def _names(self) -> list[str] | None:
        try:
            return list(self.output_names)  # type: ignore[attr-defined]
        except AttributeError:
            return None

    def _assert_compiled(self, what: str) -> None:
        if not self.compiled:
            raise ValueError(f"model {self.name!r} must be compiled before {what}(): call compile(optimizer, loss)")

    def get_compile_config(self) -> dict[str, Any] | None:
        """The arguments of `compile` in a form that files can hold."""
        if not self.compiled:
            return None
        from meganeura import losses

        def plain(value: Any, family: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [plain(v, family) for v in value]
            if isinstance(value, dict):
                return {k: plain(v, family) for k, v in value.items()}
            return value if value is None or isinstance(value, str) else family.serialize(value)

        given = dict(self._compile_arguments)
        given["optimizer"] = optim.serialize(self.optimizer)
        given["loss"] = plain(given["loss"], losses)
        for name in ("metrics", "weighted_metrics"):
            given[name] = plain(given[name], metrics_module)
        return given

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as `get_compile_config` described, and make the optimizer's variables."""
        from meganeura import losses

        def real(value: Any, family: Any) -> Any:
            if isinstance(value, list):
                return [real(v, family) for v in value]
            if isinstance(value, dict) and "class_name" not in value:
                return {k: real(v, family) for k, v in value.items()}
            return family.deserialize(value) if isinstance(value, dict) else value

        config = dict(config)
        if isinstance(config.get("optimizer"), dict):
            config["optimizer"] = optim.deserialize(config["optimizer"])
        config["loss"] = real(config.get("loss"), losses)
        for name in ("metrics", "weighted_metrics"):
            config[name] = real(config.get(name), metrics_module)
        known = ("optimizer", "loss", "loss_weights", "metrics", "weighted_metrics", "run_eagerly",
                 "steps_per_execution", "jit_compile")  # fmt: skip
        self.compile(**{k: v for k, v in config.items() if k in known and v is not None})
        if getattr(self, "built", False) and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]

    # --- metrics -------------------------------------------------------------------------------

    @property
    def metrics(self) -> list[Any]:
        """The running loss, those of the outputs, and every metric of the model."""
        found: list[Any] = []
        if self._loss_tracker is not None:
            found.append(self._loss_tracker)
        if self._compile_loss is not None:
            found += [t for t in self._compile_loss.trackers if t is not None]
        if self._compile_metrics is not None:
            found += self._compile_metrics.metrics
        for metric in super().metrics:  # type: ignore[misc]
            if not any(metric is m for m in found):
                found.append(metric)
        return found

    @property
    def metrics_names(self) -> list[str]:
        return list(self.get_metrics_result())

    def reset_metrics(self) -> None:
        for metric in self.metrics:
            metric.reset_state()

    def _metric_keys(self) -> list[tuple[str, Any]]:
        """(name in the logs, metric), losses first, then as they were compiled."""
        keys = self._compile_metrics.keys if self._compile_metrics is not None else {}
        return [(keys.get(id(m), m.name), m) for m in self.metrics]

    def get_metrics_result(self) -> dict[str, Any]:
        """The metrics so far, as Python numbers (arrays for those with several values)."""
        found: dict[str, Any] = {}
        for name, metric in self._metric_keys():
            value = metric.result()
            values = value if isinstance(value, dict) else {name: value}
            for key, v in values.items():
                array = np.asarray(v.numpy() if hasattr(v, "numpy") else v)
                found[key] = float(array) if array.ndim == 0 else array
        return found

    def _results(self, as_dict: bool) -> Any:
        logs = self.get_metrics_result()
        if as_dict:
            return logs
        many = self._compile_loss is not None and self._compile_loss.trackers
        if many:
            first = ["loss", *(t.name for t in self._compile_loss.trackers if t is not None)]  # type: ignore[union-attr]
            names = [*first, *sorted(k for k in logs if k not in first)]
        else:
            names = list(logs)
        values = [logs[n] for n in names]
        return values[0] if len(values) == 1 else values

    # --- the step ------------------------------------------------------------------------------

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """The loss to minimise: that of the outputs, regularization, and what layers added."""
        now = trace.current()
        parts: list[Any] = []
        if self._compile_loss is not None:
            batch = float(flat(y_pred)[0].shape[0])
            parts.append(self._compile_loss(y, y_pred, sample_weight, batch))
        if now is not None:
            parts += now.losses
            now.losses = []
        parts += self._regularization_losses_of_all()
        if not parts:
            if self._compile_loss is None:
                raise ValueError(
                    f"model {self.name!r} has no loss to compute: pass loss= to compile(), or call add_loss()"
                )
            return ops.convert_to_tensor(0.0)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _regularization_losses_of_all(self) -> list[Any]:
        return self._regularization_losses()  # type: ignore[attr-defined]

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """Bring the compiled metrics up to date with a batch."""
        if self._compile_metrics is not None and y is not None:
            self._compile_metrics.update(y, y_pred, sample_weight)
        return {}

    def train_step(self, data: Any) -> Any:
        """One step of training. Override it for a step of one's own, written with `meganeura.value_and_grad`."""
        x, y, sample_weight = sources.unpack(data)

        def loss_of() -> Any:
            y_pred = self(x, training=True)  # type: ignore[operator]
            loss = self.compute_loss(x, y, y_pred, sample_weight, True)
            return self.optimizer.scale_loss(loss), (loss, y_pred)

        variables = self.trainable_variables  # type: ignore[attr-defined]
        (_, (loss, y_pred)), gradients = value_and_grad(loss_of, variables, has_aux=True)()
        self._track_loss(loss, x)
        if variables:
            self.optimizer.apply(gradients, variables)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: Any) -> Any:
        """One step of evaluation."""
        x, y, sample_weight = sources.unpack(data)
        y_pred = self(x, training=False)  # type: ignore[operator]
        loss = self.compute_loss(x, y, y_pred, sample_weight, False)
        self._track_loss(loss, x)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data: Any) -> Any:
        """The outputs for a batch."""
        x, _, _ = sources.unpack(data)
        return self(x, training=False)  # type: ignore[operator]

    def _track_loss(self, loss: Any, x: Any) -> None:
        if self._loss_tracker is not None:
            batch = next((v.shape[0] for v in flat(x) if getattr(v, "shape", ())), 1)
            self._loss_tracker.update_state(loss, sample_weight=float(batch))

    def _step(self, kind: str, batch: sources.Batch, source: Any) -> Step:
        """The compiled step for batches like this one, made at first need."""
        flags = tuple(v.trainable for v in self.weights)  # type: ignore[attr-defined]
        owner = id(source) if batch.resident else 0
        key = (kind, batch_key(batch), owner, flags)
        step = None if self.run_eagerly else self._steps.get(key)
        if step is None:
            body = {"train": self._train_body, "test": self._test_body, "predict": self._predict_body}[kind]
            step = Step(body, batch, source, optimize=False if self.run_eagerly else None)
            if not self.run_eagerly:
                self._steps[key] = step
        self._last_step[kind] = step
        return step

    def _train_body(self, data: Any) -> Any:
        self.train_step(_trimmed(data))
        return None

    def _test_body(self, data: Any) -> Any:
        self.test_step(_trimmed(data))
        return None

    def _predict_body(self, data: Any) -> Any:
        return self.predict_step(_trimmed(data))

    def make_train_function(self, force: bool = False) -> None:
        """Forget compiled steps where `force` is set; they are made again at need."""
        if force:
            self._steps.clear()

    make_test_function = make_predict_function = make_train_function

    def _last_executable(self) -> Any:
        for kind in ("train", "test", "predict"):
            if kind in self._last_step:
                return self._last_step[kind].executable
        return None

    def _prepare(self, batch: sources.Batch, source: Any, training: bool) -> None:
        """Make all variables before the first step, so that tracing it twice changes nothing."""
        if not getattr(self, "built", False) or not self._variables_made():
            with trace.Trace() as scratch:
                nodes = [scratch.input(t.shape, t.dtype) for t in batch.tensors]
                parts = source.gather(nodes, batch.size) if batch.resident else nodes
                x, _, _ = sources.fill(batch.structure, parts)
                self(x, training=training)  # type: ignore[operator]
        if training and self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]

    def _variables_made(self) -> bool:
        return all(layer.built for layer in self._flatten_layers())  # type: ignore[attr-defined]

    def _check_targets(self, y: Any) -> None:
        """Labels and shapes of host arrays, against the outputs of a symbolic model."""
        if self._compile_loss is None or y is None or self._checked_targets:
            return
        try:
            outputs = self.output  # type: ignore[attr-defined]
        except AttributeError:
            return
        shapes = [tuple(t.shape) for t in flat(outputs)]
        names = self._compile_loss.names or [f"output_{i}" for i in range(len(shapes))]
        from meganeura.models.compile_utils import per_output

        losses = per_output(self._compile_loss.given, outputs, self._compile_loss.names, "compile: loss")
        targets = ordered(y, outputs, self._compile_loss.names)
        checks.check_targets(list(zip(losses, names, strict=True)), targets, shapes)

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
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> Any:
        """Train on arrays, a generator, or any iterable of batches. Returns the History.

        Arrays stay on the device, and each step gathers its own batch there.
        """
        self._assert_compiled("fit")
        size = checks.check_batch_size(batch_size)
        if class_weight is not None and sample_weight is not None:
            raise ValueError("fit takes class_weight or sample_weight, not both")
        if validation_split and validation_data is None:
            if not sources.is_array_like(x):
                raise ValueError("validation_split is for arrays; give validation_data with a generator or data set")
            arrays = [checks.as_arrays(v, n) for v, n in ((x, "x"), (y, "y"), (sample_weight, "sample_weight"))]
            (x, y, sample_weight), validation_data = checks.split(*arrays, validation_split)
        if sources.is_array_like(x):
            y = checks.as_arrays(y, "y")
            self._check_targets(y)
        source = sources.make(x, y, sample_weight, size, shuffle, class_weight)
        validation = None
        if validation_data is not None:
            validation = self._validation_source(validation_data, validation_batch_size or size)
        batches = source.batches if steps_per_epoch is None else steps_per_epoch
        listed = CallbackList(
            callbacks, model=self, verbose=verbose, epochs=epochs, steps=batches, initial_epoch=initial_epoch
        )
        self.stop_training = False
        first = next(source.runs())[0] if isinstance(source, sources.ResidentArrays) else source.peek()
        if first is None:
            raise ValueError("there are no samples: the first epoch of the data is empty")
        self._prepare(first, source, training=True)
        logs: dict[str, Any] = {}
        listed.on_train_begin()
        try:
            for epoch in range(initial_epoch, epochs):
                self.reset_metrics()
                listed.on_epoch_begin(epoch)
                self._epoch(source, steps_per_epoch, listed)
                logs = dict(sorted(self.get_metrics_result().items()))
                if validation is not None and _due(validation_freq, epoch):
                    found = self._evaluate(validation, validation_steps, listed)
                    logs.update({f"val_{k}": v for k, v in sorted(found.items())})
                listed.on_epoch_end(epoch, logs)
                if self.stop_training:
                    break
        finally:
            if self.optimizer is not None and epochs > 0 and self.optimizer.built:
                self.optimizer.finalize_variable_values(self.trainable_variables)  # type: ignore[attr-defined]
        listed.on_train_end(logs)
        return self.history

    def _validation_source(self, data: Any, batch_size: int) -> Any:
        if isinstance(data, (tuple, list)) and 2 <= len(data) <= 3 and sources.is_array_like(data[0]):
            x, y, w = sources.unpack(tuple(data))
            self._check_targets(checks.as_arrays(y, "y"))
            return sources.make(x, y, w, batch_size, False)
        return sources.make(data, None, None, batch_size, False)

    def _epoch(self, source: Any, limit: int | None, listed: CallbackList) -> None:
        if isinstance(source, sources.ResidentArrays):
            self._resident_epoch(source, limit, listed)
            return
        source.start_epoch()
        done = 0
        while limit is None or done < limit:
            batch = source.next()
            if batch is None:
                if limit is not None and done < limit:
                    if not done and source.rewind():
                        continue
                    sources.ran_out(limit)
                    source.rewind()
                    if not source.restartable:
                        self.stop_training = True
                elif not source.rewind() and done == 0:
                    raise ValueError("the generator has no more batches; make a new one for each fit")
                break
            listed.on_train_batch_begin(done)
            self._step("train", batch, source).run(batch)
            listed.on_train_batch_end(done, LazyLogs(self.get_metrics_result))
            done += 1
            if self.stop_training:
                break
        source.end_epoch()
        if done and limit is None:
            source.rewind()

    def _resident_epoch(self, source: sources.ResidentArrays, limit: int | None, listed: CallbackList) -> None:
        """Where `limit` ends an epoch early, the next goes on from there."""
        plan = getattr(source, "pending", None)
        if not plan:
            source.start_epoch()
            plan = [[batch, count] for batch, count in source.runs()]
        done = 0
        at_once = self.steps_per_execution
        if at_once == 1 and not listed.looks_at_batches and not self.run_eagerly:
            at_once = STEPS_AT_ONCE
        while plan and not self.stop_training and (limit is None or done < limit):
            batch, count = plan[0]
            n = min(count, at_once, (limit - done) if limit is not None else count)
            step = self._step("train", batch, source)
            listed.on_train_batch_begin(done)
            step.run_many(batch, n)
            done += n
            listed.on_train_batch_end(done - 1, LazyLogs(self.get_metrics_result))
            plan[0][1] -= n
            if not plan[0][1]:
                plan.pop(0)
        source.pending = plan if limit is not None else []  # type: ignore[attr-defined]
        if limit is not None and done < limit and not self.stop_training:
            sources.ran_out(limit)

    # --- evaluate ------------------------------------------------------------------------------

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
        **kwargs: Any,
    ) -> Any:
        """The loss and the metrics on data: a number, a list, or with return_dict a dict."""
        self._assert_compiled("evaluate")
        if kwargs:
            raise TypeError(f"evaluate has no argument {next(iter(kwargs))!r}")
        size = checks.check_batch_size(batch_size)
        if sources.is_array_like(x):
            y = checks.as_arrays(y, "y")
            self._check_targets(y)
        source = sources.make(x, y, sample_weight, size, False)
        listed = CallbackList(callbacks, model=self, verbose=verbose, epochs=1, steps=steps or source.batches, test=True)
        self._evaluate(source, steps, listed)
        return self._results(return_dict)

    def _evaluate(self, source: Any, steps: int | None, listed: CallbackList) -> dict[str, Any]:
        self.reset_metrics()
        listed.on_test_begin()
        done = 0
        if isinstance(source, sources.ResidentArrays):
            source.start_epoch()
            for batch, count in source.runs():
                if done == 0:
                    self._prepare(batch, source, training=False)
                n = count if steps is None else min(count, steps - done)
                step = self._step("test", batch, source)
                while n > 0:
                    some = 1 if listed.looks_at_batches else min(n, STEPS_AT_ONCE)
                    listed.on_test_batch_begin(done)
                    step.run_many(batch, some)
                    done += some
                    n -= some
                    listed.on_test_batch_end(done - 1, LazyLogs(self.get_metrics_result))
        else:
            source.start_epoch()
            while steps is None or done < steps:
                batch = source.next()
                if batch is None:
                    break
                if done == 0:
                    self._prepare(batch, source, training=False)
                listed.on_test_batch_begin(done)
                self._step("test", batch, source).run(batch)
                listed.on_test_batch_end(done, LazyLogs(self.get_metrics_result))
                done += 1
            source.rewind()
            if not done:
                raise ValueError("there are no samples to evaluate: the data are empty")
        logs = self.get_metrics_result()
        listed.on_test_end(logs)
        return logs

    # --- predict -------------------------------------------------------------------------------

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """The outputs for all samples, as NumPy arrays in the structure of the model's outputs."""
        size = checks.check_batch_size(batch_size)
        source = sources.make(x, None, None, size, False)
        listed = CallbackList(callbacks, model=self, verbose=verbose, epochs=1, steps=steps or source.batches, test=True)
        listed.on_predict_begin()
        waiting: list[Any] = []
        parts: list[Any] = []
        done = 0

        def run(batch: sources.Batch) -> None:
            nonlocal done
            if done == 0:
                self._prepare(batch, source, training=False)
            listed.on_predict_batch_begin(done)
            outputs = self._step("predict", batch, source).run(batch)
            waiting.append(outputs)
            if len(waiting) > 4 or listed.looks_at_batches:  # read what is long done, while the device works
                parts.append(map_tree(lambda t: np.asarray(t), waiting.pop(0)))
            listed.on_predict_batch_end(done, {"outputs": outputs})
            done += 1

        if isinstance(source, sources.ResidentArrays):
            source.start_epoch()
            for batch, count in source.runs():
                for _ in range(count if steps is None else min(count, steps - done)):
                    run(batch)
        else:
            source.start_epoch()
            while steps is None or done < steps:
                streamed = source.next()
                if streamed is None:
                    break
                run(streamed)
        parts += [map_tree(lambda t: np.asarray(t), w) for w in waiting]
        listed.on_predict_end()
        if not parts:
            raise ValueError("there are no samples to predict: the data are empty")
        return _concatenated(parts)

    # --- single batches ------------------------------------------------------------------------

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """One step on one batch; the values are those of this batch alone."""
        self._assert_compiled("train_on_batch")
        if class_weight is not None and sample_weight is not None:
            raise ValueError("train_on_batch takes class_weight or sample_weight, not both")
        self._one("train", (x, y, sample_weight), class_weight)
        return self._results(return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """The loss and metrics of one batch."""
        self._assert_compiled("test_on_batch")
        self._one("test", (x, y, sample_weight), None)
        return self._results(return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for one batch, as NumPy arrays."""
        return map_tree(lambda t: np.asarray(t), self._one("predict", (x, None, None), None))

    def _one(self, kind: str, data: tuple[Any, Any, Any], class_weight: Any) -> Any:
        stream = self.__dict__.setdefault("_single_batches", sources.Stream([]))
        stream._class_weight = class_weight
        if kind != "predict":
            y = checks.as_arrays(data[1], "y")
            self._check_targets(y)
        batch = stream.batch(data)
        self._prepare(batch, stream, training=kind == "train")
        if kind != "predict":
            self.reset_metrics()
        return self._step(kind, batch, stream).run(batch)


def _trimmed(data: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """(x, y, None) as (x, y), as users' own steps expect."""
    x, y, w = data
    return (x, y, w) if w is not None else (x, y) if y is not None else (x,)


def _due(frequency: Any, epoch: int) -> bool:
    if isinstance(frequency, int):
        return (epoch + 1) % frequency == 0
    return epoch + 1 in frequency


def _concatenated(parts: list[Any]) -> Any:
    leaves = [flat(p) for p in parts]
    joined = iter([np.concatenate(column) for column in zip(*leaves, strict=True)])
    return map_tree(lambda _: next(joined), parts[0])



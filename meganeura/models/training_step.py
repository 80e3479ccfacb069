"""What a step of training, evaluation or prediction is: how it was compiled, its loss and its metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura import losses, ops, optim
from meganeura import metrics as metrics_module
from meganeura.data.batch import unpack
from meganeura.gradient import value_and_grad
from meganeura.graph import trace
from meganeura.graph.trace import ConcretizationError
from meganeura.models.compile_utils import CompileLoss, CompileMetrics, flat
from meganeura.models.steps import Later, Logs
from meganeura.variable import Variable

_COMPILE_OPTIONS = (
    "optimizer", "loss", "loss_weights", "metrics", "weighted_metrics", "run_eagerly",
    "steps_per_execution", "jit_compile",
)  # fmt: skip


class TrainingStep:
    """How a model was compiled, and the steps that users may override: `train_step`, `test_step`,
    `predict_step`, `compute_loss`, `compute_metrics`.

    They are recorded into one graph each. The values of what they compute are not known while that
    happens, unless the model was compiled with run_eagerly=True.
    """

    name: str

    def __init__(self) -> None:
        self.compiled = False
        self.optimizer: Any = None
        self.loss: Any = None
        self.run_eagerly = False
        self.steps_per_execution = 1
        self.jit_compile: Any = "auto"
        self._compile_loss: CompileLoss | None = None
        self._compile_metrics: CompileMetrics | None = None
        self._compile_arguments: dict[str, Any] = {}
        self._loss_tracker: Any = None
        self._log_variables: dict[Any, Variable] = {}
        self._reading: dict[Any, Logs] = {}
        #: results of metrics while a step is recorded: id -> (value, metric)
        self._recorded: dict[int, tuple[Any, Any]] = {}

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

        loss, metrics:       one for all outputs, a list in their order, or a dict by their names
        loss_weights:        what each output's loss is multiplied by in the sum that is minimised
        weighted_metrics:    metrics to which sample weights apply
        run_eagerly:         the step is recorded anew for every batch and runs as it is written; code
                             in it may ask for values (print, if, numpy), which is slow
        steps_per_execution: how many steps callbacks hear of at once
        jit_compile:         accepted for Keras's sake; every step is compiled
        auto_scale_loss:     whether the optimizer of a model by the policy "mixed_float16" is put into a
                             LossScaleOptimizer, so that small gradients are not lost

        Raises ValueError for unknown names, telling near ones.
        """
        if (
            isinstance(steps_per_execution, bool)
            or not isinstance(steps_per_execution, (int, np.integer))
            or steps_per_execution < 1
        ):
            raise ValueError(
                f"compile: steps_per_execution must be a positive integer, not {steps_per_execution!r}"
            )
        names = self._compile_names()
        if loss_weights is not None and loss is None:
            raise ValueError("compile: loss_weights were given without a loss")
        chosen = optim.get(optimizer)
        mixed = self.dtype_policy.name == "mixed_float16"  # type: ignore[attr-defined]
        if mixed and auto_scale_loss and chosen is not None:
            if not isinstance(chosen, optim.LossScaleOptimizer):
                chosen = optim.LossScaleOptimizer(chosen, name="loss_scale_optimizer")
        compile_loss = CompileLoss(loss, loss_weights, names) if loss is not None else None
        self._compile_metrics = CompileMetrics(metrics, weighted_metrics, names)
        self._compile_loss = compile_loss
        self._loss_tracker = metrics_module.Mean(name="loss")
        given = (
            optimizer, loss, loss_weights, metrics, weighted_metrics, bool(run_eagerly),
            int(steps_per_execution), jit_compile,
        )  # fmt: skip
        self._compile_arguments = dict(zip(_COMPILE_OPTIONS, given, strict=True))
        self.optimizer = chosen
        self.loss = loss
        self.run_eagerly = bool(run_eagerly)
        self.steps_per_execution = int(steps_per_execution)
        self.jit_compile = jit_compile
        self.compiled = True
        self._forget_steps()

    def _forget_steps(self) -> None:
        self._reading.clear()

    def _compile_names(self) -> list[str] | None:
        try:
            return list(self.output_names)  # type: ignore[attr-defined]
        except AttributeError:
            return None

    def _assert_compiled(self, what: str) -> None:
        if not self.compiled:
            raise ValueError(
                f"model {self.name!r} must be compiled before {what}(): call compile(optimizer, loss)"
            )

    def get_compile_config(self) -> dict[str, Any] | None:
        """The arguments of `compile` in a form that files can hold; None before it was called."""
        if not self.compiled:
            return None

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
        self.compile(**{k: v for k, v in config.items() if k in _COMPILE_OPTIONS and v is not None})
        if getattr(self, "built", False) and self.optimizer and not self.optimizer.built:
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

    def _metrics_below(self) -> list[Any]:
        """Inside of another model only the metrics of layers count: this one was compiled for itself."""
        found: list[Any] = []
        for layer in self._layers:  # type: ignore[attr-defined]
            found += [m for m in layer._metrics_below() if not any(m is f for f in found)]
        return found

    @property
    def metrics_names(self) -> list[str]:
        """The names in the logs."""
        return list(self.get_metrics_result())

    def reset_metrics(self) -> None:
        """Forget what the metrics have seen."""
        for metric in self.metrics:
            metric.reset_state()

    def _metric_keys(self) -> list[tuple[str, Any]]:
        """(name in the logs, metric), losses first, then as they were compiled."""
        keys = self._compile_metrics.keys if self._compile_metrics is not None else {}
        return [(keys.get(id(m), m.name), m) for m in self.metrics]

    def get_metrics_result(self) -> dict[str, Any]:
        """The metrics so far: floats, arrays for those of several values, and nodes inside a step."""
        if trace.current() is None:
            return self._logs(self._metric_keys()).read()
        found: dict[str, Any] = {}
        for name, metric in self._metric_keys():
            try:
                value = metric.result()
            except ConcretizationError:  # computed with NumPy, so it has to wait for the step
                value = Later(metric)
            values = value if isinstance(value, dict) else {name: value}
            found.update(values)
            self._recorded.update({id(v): (v, metric) for v in values.values()})
        return found

    def _logs(self, entries: list[tuple[str, Any]]) -> Logs:
        key = tuple((name, id(held)) for name, held in entries)
        if key not in self._reading:
            self._reading[key] = Logs(entries)
        return self._reading[key]

    def _log_entries(self, kind: str, returned: Any) -> list[tuple[str, Any]]:
        """Where the values that a step returned will be: in the metric that they are the result of,
        or in a variable, which the step being recorded assigns."""
        if not isinstance(returned, dict):
            return self._metric_keys()
        entries: list[tuple[str, Any]] = []
        for name, value in returned.items():
            _, metric = self._recorded.get(id(value), (None, None))
            if metric is None:
                entries.append((name, self._log_variable(kind, name, value)))
            elif not any(metric is held for _, held in entries):
                entries.append((name, metric))
        return entries

    def _log_variable(self, kind: str, name: str, value: Any) -> Variable:
        node = ops.cast(ops.convert_to_node(value), "float32")
        key = (kind, name, node.shape)
        if key not in self._log_variables:
            zeros = np.zeros(node.shape, np.float32)
            self._log_variables[key] = Variable(zeros, trainable=False, name=f"{kind}_{name}")
        self._log_variables[key].assign(node)
        return self._log_variables[key]

    # --- the step ------------------------------------------------------------------------------

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """The scalar to minimise: sum over outputs of weight * loss(y, y_pred), plus the regularizers
        of the weights, plus what layers added with `add_loss`."""
        parts: list[Any] = []
        if self._compile_loss is not None:
            batch = float(flat(y_pred)[0].shape[0])
            parts.append(self._compile_loss(y, y_pred, sample_weight, batch))
        now = trace.current()
        if now is None:
            parts += self.losses  # type: ignore[attr-defined]
        else:
            parts += now.losses
            now.losses = []
            parts += self._regularization_losses()  # type: ignore[attr-defined]
        if not parts:
            raise ValueError(
                f"model {self.name!r} has no loss to compute: pass loss= to compile(), or call "
                "add_loss() in a layer"
            )
        total = parts[0]
        for part in parts[1:]:
            total = ops.add(total, part)
        return total

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Bring the compiled metrics up to date with a batch; returns all of them by name."""
        if self._compile_metrics is not None and self._compile_metrics.wanted:
            self._compile_metrics.update(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def train_step(self, data: Any) -> Any:
        """One step of training. Override it for a step of one's own, written with
        `meganeura.value_and_grad`; what it returns, a dict of scalars, becomes the logs."""
        x, y, sample_weight = unpack(data)

        def loss_of() -> Any:
            y_pred = self(x, training=True)  # type: ignore[operator]
            loss = self.compute_loss(
                x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True
            )
            return self.optimizer.scale_loss(loss), (loss, y_pred)

        if self.optimizer is None:
            raise ValueError(
                f"model {self.name!r} was compiled without an optimizer, so it cannot train"
            )
        variables = self.trainable_variables  # type: ignore[attr-defined]
        (_, (loss, y_pred)), gradients = value_and_grad(loss_of, variables, has_aux=True)()
        self._track_loss(loss, x)
        if variables:
            self.optimizer.apply(gradients, variables)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: Any) -> Any:
        """One step of evaluation."""
        x, y, sample_weight = unpack(data)
        y_pred = self(x, training=False)  # type: ignore[operator]
        loss = self.compute_loss(
            x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=False
        )
        self._track_loss(loss, x)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data: Any) -> Any:
        """The outputs for a batch."""
        x, _, _ = unpack(data)
        return self(x, training=False)  # type: ignore[operator]

    def _track_loss(self, loss: Any, x: Any) -> None:
        if self._loss_tracker is not None:
            batch = next((v.shape[0] for v in flat(x) if getattr(v, "shape", ())), 1)
            self._loss_tracker.update_state(loss, sample_weight=float(batch))

    def _overrides(self, *names: str) -> bool:
        """Whether a subclass defines one of these methods of a step."""
        return any(getattr(type(self), n) is not getattr(TrainingStep, n) for n in names)

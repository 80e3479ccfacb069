"""Optimizers and schedules: the rules by hand, what surrounds an update, names, configs, errors."""

from __future__ import annotations

import importlib
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import constraints, ops, optim
from meganeura.optim import schedules
from meganeura.tensor import Tensor
from meganeura.variable import Variable

G = np.array([0.3, -2.0, 0.05], np.float32)
W = np.array([1.0, 2.0, -3.0], np.float32)


def weight(value: Any = W, path: str = "dense/kernel") -> Variable:
    return Variable(np.asarray(value, np.float32), name=path.rpartition("/")[2], path=path)


def steps(optimizer: optim.Optimizer, count: int, gradient: Any = G, value: Any = W) -> np.ndarray:
    variable = weight(value)
    for _ in range(count):
        optimizer.apply([np.asarray(gradient, np.float32)], [variable])
    return variable.numpy()


def test_sgd_keeps_the_learning_rate_in_its_velocity() -> None:
    velocity, w = np.zeros(3), W.astype(np.float64)
    for _ in range(3):
        velocity = 0.9 * velocity - 0.1 * G
        w = w + 0.9 * velocity - 0.1 * G
    np.testing.assert_allclose(steps(optim.SGD(0.1, 0.9, nesterov=True), 3), w, rtol=1e-6)


def test_adam_adds_epsilon_to_the_uncorrected_root() -> None:
    """A large epsilon tells the two forms apart."""
    m = v = np.zeros(3)
    w = W.astype(np.float64)
    for t in range(1, 4):
        m, v = 0.9 * m + 0.1 * G, 0.999 * v + 0.001 * G.astype(np.float64) ** 2
        w = w - 0.01 * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 0.1)
    np.testing.assert_allclose(steps(optim.Adam(0.01, epsilon=0.1), 3), w, rtol=1e-6)


def test_rmsprop_has_epsilon_inside_the_root() -> None:
    expected = W - 0.01 * G / np.sqrt(0.1 * G**2 + 0.1)
    np.testing.assert_allclose(steps(optim.RMSprop(0.01, epsilon=0.1), 1), expected, rtol=1e-6)


def test_amsgrad_takes_the_largest_velocity() -> None:
    optimizer, variable = optim.Adam(0.01, beta_2=0.5, amsgrad=True), weight()
    for scale in (1.0, 0.0):
        optimizer.apply([G * scale], [variable])
    np.testing.assert_allclose(optimizer.slot("velocity_hat", variable).numpy(), 0.5 * G**2)


def test_weight_decay_comes_first_and_scales_with_the_rate() -> None:
    optimizer = optim.SGD(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    kernel, bias = weight(), weight(path="dense/bias")
    optimizer.apply([np.zeros(3), np.zeros(3)], [kernel, bias])
    np.testing.assert_allclose(kernel.numpy(), W * 0.95, rtol=1e-6)
    np.testing.assert_array_equal(bias.numpy(), W)


def test_clipping() -> None:
    norm = float(np.linalg.norm(G))
    np.testing.assert_allclose(
        steps(optim.SGD(1.0, clipnorm=0.5), 1), W - G * 0.5 / norm, rtol=1e-5
    )
    np.testing.assert_allclose(steps(optim.SGD(1.0, clipnorm=5.0), 1), W - G, rtol=1e-6)
    np.testing.assert_allclose(
        steps(optim.SGD(1.0, clipvalue=0.1), 1), W - np.clip(G, -0.1, 0.1), rtol=1e-6
    )
    optimizer, two = optim.SGD(1.0, global_clipnorm=0.5), [weight(), weight()]
    optimizer.apply([G, G], two)
    np.testing.assert_allclose(two[0].numpy(), W - G * 0.5 / (norm * math.sqrt(2)), rtol=1e-5)


def test_a_gradient_that_is_not_finite_shows_in_all_weights() -> None:
    optimizer, two = optim.SGD(1.0, global_clipnorm=0.5), [weight(), weight()]
    optimizer.apply([G, np.array([np.nan, 1, 1])], two)
    assert np.isnan(two[0].numpy()).all()


def test_accumulation_moves_every_third_step_by_the_mean() -> None:
    optimizer, variable = optim.SGD(1.0, gradient_accumulation_steps=3), weight()
    for step, scale in enumerate((1.0, 2.0, 6.0, 1.0)):
        optimizer.apply([G * scale], [variable])
        expected = W if step < 2 else W - 3 * G
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)
    assert int(np.asarray(optimizer.iterations)) == 1
    total = optimizer.slot("gradient_accumulator", variable).numpy()
    np.testing.assert_allclose(total, G)


def test_averages_start_as_copies_and_overwrite_on_time() -> None:
    optimizer = optim.SGD(1.0, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)
    variable = weight()
    optimizer.apply([G], [variable])
    np.testing.assert_allclose(optimizer.slot("average", variable).numpy(), W - G)
    optimizer.apply([G], [variable])
    average = 0.5 * (W - G) + 0.5 * (W - 2 * G)
    np.testing.assert_allclose(variable.numpy(), average, rtol=1e-6)


def test_constraints_follow_the_update() -> None:
    variable = weight()
    variable.constraint = constraints.NonNeg()
    optim.SGD(1.0).apply([G], [variable])
    np.testing.assert_allclose(variable.numpy(), np.maximum(W - G, 0))


def test_the_first_step_sees_iteration_zero() -> None:
    optimizer, variable = optim.SGD(schedules.PiecewiseConstantDecay([0], [1.0, 0.25])), weight()
    for expected in (W - G, W - 1.25 * G):
        optimizer.apply([G], [variable])
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)
    assert [v.name for v in optimizer.variables] == ["iteration"]
    assert float(np.asarray(optimizer.learning_rate)) == 0.25


def test_a_callable_rate() -> None:
    assert steps(optim.SGD(lambda: 0.5), 1) == pytest.approx(W - 0.5 * G)
    rate = lambda step: ops.divide(1.0, ops.add(step, 1))
    assert steps(optim.SGD(rate), 2) == pytest.approx(W - 1.5 * G)


def test_the_rate_can_be_set() -> None:
    optimizer, variable = optim.SGD(1.0), weight()
    optimizer.learning_rate = 0.5
    optimizer.apply([G], [variable])
    np.testing.assert_allclose(variable.numpy(), W - 0.5 * G)
    assert optimizer.get_config()["learning_rate"] == 0.5
    with pytest.raises(TypeError, match="schedule"):
        optim.SGD(schedules.CosineDecay(0.1, 5)).learning_rate = 0.1
    optimizer.learning_rate = schedules.CosineDecay(0.1, 5)
    assert [v.name for v in optimizer.variables] == ["iteration"]


def test_missing_gradients_leave_their_weights() -> None:
    one, two = weight(), weight(path="unused/kernel")
    with pytest.warns(UserWarning, match="unused/kernel"):
        optim.SGD(1.0).apply([G, None], [one, two])
    np.testing.assert_allclose(one.numpy(), W - G)
    np.testing.assert_array_equal(two.numpy(), W)


def test_a_step_is_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    function = importlib.import_module("meganeura.execution")

    runs = []
    real = function.compiled
    monkeypatch.setattr(function, "compiled", lambda *a, **k: runs.append(a) or real(*a, **k))
    optimizer = optim.Adam(0.01, weight_decay=0.1, global_clipnorm=1.0, use_ema=True)
    optimizer.apply([G, G], [weight(), weight(path="b")])
    assert len(runs) == 1


def test_adafactor_keeps_rows_and_columns_apart() -> None:
    rng = np.random.default_rng(0)
    g, w = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    optimizer, variable = optim.Adafactor(0.1), weight(w)
    optimizer.apply([g.astype(np.float32)], [variable])
    r, c = (g**2).mean(1), (g**2).mean(0)
    u = g / np.sqrt(np.outer(r / r.mean(), c))
    u /= max(1.0, math.sqrt((u**2).mean()))
    expected = w - 0.1 * math.sqrt((w**2).mean()) * u
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)


def test_muon_steps_are_nearly_orthogonal() -> None:
    rng = np.random.default_rng(0)
    variable = weight(np.zeros((6, 4)))
    optimizer = optim.Muon(1.0, weight_decay=None, rms_rate=None)
    optimizer.apply([rng.normal(size=(6, 4)).astype(np.float32)], [variable])
    singular = np.linalg.svd(variable.numpy(), compute_uv=False)
    assert (singular > 0.6).all() and (singular < 1.3).all()
    embedding = weight(np.zeros((6, 4)), "embedding/embeddings")
    optimizer = optim.Muon(1.0)
    optimizer.build([embedding])
    assert [v.name.rpartition("_")[2] for v in optimizer.variables[2:]] == ["momentum", "velocity"]


def test_schedule_free_weights_lie_between_iterate_and_average() -> None:
    optimizer, variable = optim.ScheduleFreeAdamW(0.1, beta_1=0.8), weight()
    z, x, v = W.astype(np.float64), W.astype(np.float64), np.zeros(3)
    for t in range(1, 4):
        optimizer.apply([G], [variable])
        v = 0.999 * v + 0.001 * G.astype(np.float64) ** 2
        z = z - 0.1 * G / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        x = (1 - 1 / t) * x + z / t
        np.testing.assert_allclose(variable.numpy(), 0.2 * z + 0.8 * x, rtol=1e-5)


def test_loss_scaling_skips_bad_steps() -> None:
    optimizer = optim.LossScaleOptimizer(optim.SGD(1.0), initial_scale=8.0, dynamic_growth_steps=2)
    variable = weight()
    optimizer.build([variable])
    assert float(optimizer.scale_loss(2.0)) == 16.0
    optimizer.apply([G * 8])
    np.testing.assert_allclose(variable.numpy(), W - G, rtol=1e-6)
    optimizer.apply([G * np.inf])
    np.testing.assert_allclose(variable.numpy(), W - G, rtol=1e-6)
    assert float(np.asarray(optimizer.dynamic_scale)) == 4.0
    for _ in range(2):
        optimizer.apply([G * 0])
    assert float(np.asarray(optimizer.dynamic_scale)) == 8.0
    assert int(np.asarray(optimizer.iterations)) == 3


def test_one_optimizer_for_each_group() -> None:
    chooser = optim.OptimizerMap(optim.SGD(1.0), {"encoder/.*": optim.SGD(0.5)})
    optimizer = optim.MultiOptimizer(chooser)
    one, two = weight(path="encoder/dense/kernel"), weight(path="head/kernel")
    optimizer.apply([G, G], [one, two])
    np.testing.assert_allclose(one.numpy(), W - 0.5 * G)
    np.testing.assert_allclose(two.numpy(), W - G)
    again = optim.deserialize(json.loads(json.dumps(optim.serialize(optimizer))))
    assert float(np.asarray(again.optimizers[0].learning_rate)) == 0.5


def test_state_can_be_stored() -> None:
    store: dict[str, np.ndarray] = {}
    first, w1 = optim.Adam(0.1), weight()
    first.apply([G], [w1])
    first.save_own_variables(store)
    second, w2 = optim.Adam(0.3), weight(w1.numpy())
    with pytest.warns(UserWarning, match="build the optimizer first"):
        second.load_own_variables(store)
    second.build([w2])
    second.load_own_variables(store)
    for optimizer, variable in ((first, w1), (second, w2)):
        optimizer.apply([G], [variable])
    np.testing.assert_array_equal(w1.numpy(), w2.numpy())


def test_an_optimizer_of_ones_own() -> None:
    class SignDescent(optim.Optimizer):
        def build(self, variables: Any) -> None:
            super().build(variables)
            self.counts = self.add_optimizer_variables(variables, "count")

        def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
            count = self.counts[self._get_variable_index(variable)]
            self.assign_add(count, ops.ones_like(gradient))
            self.assign_sub(variable, ops.sign(gradient) * learning_rate)

    optimizer, variable = SignDescent(0.5), weight()
    for _ in range(2):
        optimizer.apply([G], [variable])
    np.testing.assert_allclose(variable.numpy(), W - np.sign(G))
    assert [v.path for v in optimizer.variables][2].endswith("/dense_kernel_count")
    assert (optimizer.variables[2].numpy() == 2).all()


KINDS = [n for n in optim.__all__ if n[0].isupper() and n not in ("Optimizer", "OptimizerMap")]
PLAIN = [n for n in KINDS if n not in ("LossScaleOptimizer", "MultiOptimizer")]


@pytest.mark.parametrize("name", PLAIN)
def test_every_optimizer_descends_and_keeps_shape_and_dtype(name: str) -> None:
    optimizer = getattr(optim, name)(learning_rate=0.01)
    variables = [weight(np.full(s, 0.7)) for s in ((3, 2), (4,), (), (2, 2, 2))]
    before = [v.numpy() for v in variables]
    for _ in range(5):
        optimizer.apply([v.numpy() for v in variables], variables)
    for old, variable in zip(before, variables, strict=True):
        assert variable.shape == old.shape and variable.numpy().dtype == np.float32
        assert (np.abs(variable.numpy()) < np.abs(old)).all()


@pytest.mark.parametrize("name", PLAIN)
def test_config_round_trip(name: str) -> None:
    kind = getattr(optim, name)
    optimizer = kind(learning_rate=0.25, clipnorm=1.0, name="mine")
    config = json.loads(json.dumps(optim.serialize(optimizer)))
    assert config["module"] == "keras.optimizers" and config["class_name"] == name
    again = optim.deserialize(config)
    assert type(again) is kind and again.get_config() == optimizer.get_config()
    for spelling in (name, name.lower(), name.upper()):
        assert type(optim.get(spelling)) is kind


def test_configs_of_older_keras_are_read() -> None:
    config = {"name": "Adam", "learning_rate": 0.1, "decay": 0.0, "jit_compile": True,
              "is_legacy_optimizer": False, "beta_1": 0.8}  # fmt: skip
    optimizer = optim.deserialize({"class_name": "Custom>Adam", "config": config})
    assert isinstance(optimizer, optim.Adam) and optimizer.beta_1 == 0.8
    module = "keras.src.backend.torch.optimizers.torch_adam"
    assert isinstance(
        optim.deserialize({"module": module, "class_name": "Adam", "config": {}}), optim.Adam
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optim.get("adm"), "adam"),
        (lambda: optim.get(print), "not an optimizer"),
        (lambda: optim.Adam(lr=0.1), "learning_rate"),
        (lambda: optim.Adam(beta1=0.1), "beta_1"),
        (lambda: optim.Adam("fast"), "'fast'"),
        (lambda: optim.SGD(momentum=1.5), "momentum"),
        (lambda: optim.SGD(clipnorm=1.0, clipvalue=1.0), "clipnorm and clipvalue"),
        (lambda: optim.SGD(gradient_accumulation_steps=1), "gradient_accumulation_steps"),
        (lambda: optim.SGD().apply([G]), "not built"),
        (lambda: optim.SGD().apply([G, G], [weight()]), "2 gradients for 1 weights"),
        (lambda: optim.SGD().apply([np.zeros(2)], [weight()]), "(2,)"),
        (lambda: optim.SGD().apply([None], [weight()]), "no gradient"),
        (lambda: schedules.CosineDecay(0.1, 0), "decay_steps"),
        (lambda: schedules.PiecewiseConstantDecay([1], [1.0]), "2 values"),
    ],
)
def test_errors(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()
    assert words in str(caught.value)


def test_new_weights_need_a_new_optimizer() -> None:
    optimizer = optim.SGD()
    optimizer.apply([G], [weight()])
    with pytest.raises(ValueError, match="new optimizer"):
        optimizer.apply([G], [weight(path="other")])


RATES: dict[str, tuple[schedules.LearningRateSchedule, Callable[[int], float]]] = {
    "exponential": (
        schedules.ExponentialDecay(0.1, 4, 0.5, staircase=True),
        lambda s: 0.1 * 0.5 ** (s // 4),
    ),
    "inverse": (schedules.InverseTimeDecay(0.1, 4, 0.5), lambda s: 0.1 / (1 + 0.5 * s / 4)),
    "polynomial": (
        schedules.PolynomialDecay(0.1, 4, 0.01, power=2.0),
        lambda s: 0.09 * (1 - min(s, 4) / 4) ** 2 + 0.01,
    ),
    "cycle": (
        schedules.PolynomialDecay(0.1, 4, 0.01, cycle=True),
        lambda s: 0.09 * (1 - s / (4 * max(1, math.ceil(s / 4)))) + 0.01,
    ),
    "pieces": (
        schedules.PiecewiseConstantDecay([2, 5], [0.3, 0.2, 0.1]),
        lambda s: 0.3 if s <= 2 else 0.2 if s <= 5 else 0.1,
    ),
    "warmup": (
        schedules.CosineDecay(0.0, 6, 0.1, warmup_target=0.2, warmup_steps=3),
        lambda s: (
            0.2 * s / 3
            if s < 3
            else 0.2 * (0.9 * 0.5 * (1 + math.cos(math.pi * min(s - 3, 6) / 6)) + 0.1)
        ),
    ),
    "restarts": (
        schedules.CosineDecayRestarts(0.1, 3, t_mul=2.0, m_mul=0.5),
        lambda s: (
            0.05
            * 0.5 ** (i := 0 if s < 3 else 1 if s < 9 else 2)
            * (1 + math.cos(math.pi * (s - 3 * (2**i - 1)) / (3 * 2**i)))
        ),
    ),
}


@pytest.mark.parametrize("name", RATES)
def test_schedule(name: str) -> None:
    schedule, expected = RATES[name]
    for step in range(15):
        value = schedule(step)
        assert isinstance(value, Tensor)
        assert float(value) == pytest.approx(expected(step), abs=1e-7), step
    again = schedules.deserialize(json.loads(json.dumps(schedules.serialize(schedule))))
    assert again.get_config() == schedule.get_config()


def test_importable_under_keras_name() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import meganeura.optimizers
        from meganeura.optimizers.schedules import CosineDecay

    assert meganeura.optimizers.Adam is optim.Adam and CosineDecay is schedules.CosineDecay

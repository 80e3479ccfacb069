"""Scripts in the style of Keras's guides. Each takes the module, Keras or meganeura, and gives numbers.

`KERAS_BACKEND=torch python tests/keras_scripts.py` writes what Keras gives to tests/data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

GOLDENS = Path(__file__).parents[0] / "data" / "script_goldens.json"

SCRIPTS: dict[str, Any] = {}


def script(function: Any) -> Any:
    SCRIPTS[function.__name__] = function
    return function


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def seed_weights(*models: Any) -> None:
    for model in models:
        rng = np.random.default_rng(7)
        model.set_weights(
            [rng.uniform(-0.3, 0.3, w.shape) if w.ndim > 1 else w for w in model.get_weights()]
        )


def numbers(history: Any) -> dict[str, list[float]]:
    return {k: [float(x) for x in v] for k, v in history.history.items()}


ORDERED = {"shuffle": False, "verbose": 0, "batch_size": 8, "epochs": 2}


@script
def autoencoder_and_its_encoder(keras: Any) -> Any:
    image = keras.Input((12,))
    code = keras.layers.Dense(4, activation="relu")(image)
    model = keras.Model(image, keras.layers.Dense(12, activation="sigmoid")(code))
    encoder = keras.Model(image, code)
    seed_weights(model)
    model.compile("adam", "binary_crossentropy")
    x = abs(data(32, 12)) % 1
    return numbers(model.fit(x, x, **ORDERED)), encoder.predict(x[:2], verbose=0).tolist()


@script
def variational_autoencoder(keras: Any) -> Any:
    ops = keras.ops

    class VAE(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = keras.layers.Dense(8, activation="relu")
            self.mean, self.log_var = keras.layers.Dense(2), keras.layers.Dense(2)
            self.decoder = keras.layers.Dense(10)
            self.kl = keras.metrics.Mean(name="kl")

        def call(self, x: Any) -> Any:
            h = self.encoder(x)
            mean, log_var = self.mean(h), self.log_var(h)
            return self.decoder(mean + 0.1 * ops.exp(0.5 * log_var)), mean, log_var

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ) -> Any:
            out, mean, log_var = y_pred
            kl = -0.5 * ops.mean(1 + log_var - ops.square(mean) - ops.exp(log_var))
            self.kl.update_state(kl)
            return ops.mean(ops.square(x - out)) + 0.1 * kl

    model, x = VAE(), data(32, 10)
    model(x[:1])
    seed_weights(model)
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    return numbers(model.fit(x, **ORDERED))


@script
def adversaries_in_turn(keras: Any) -> Any:
    layers = keras.layers
    judge = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    forger = keras.Sequential([keras.Input((3,)), layers.Dense(8, "relu"), layers.Dense(6)])
    seed_weights(judge, forger)
    judge.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    judge.trainable = False
    noise = keras.Input((3,))
    both = keras.Model(noise, judge(forger(noise)))
    both.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    real, random, found = data(32, 6), data(32, 3), []
    for i in range(0, 32, 8):
        fake = forger.predict(random[i : i + 8], verbose=0)
        judge.reset_metrics()
        both.reset_metrics()
        judge.trainable = True
        x, y = np.concatenate([real[i : i + 8], fake]), np.repeat([[1.0], [0.0]], 8, axis=0)
        found.append([float(v) for v in judge.train_on_batch(x, y)])
        judge.trainable = False
        found.append(float(np.ravel(both.train_on_batch(random[i : i + 8], np.ones((8, 1))))[0]))
    return found


@script
def triplets(keras: Any) -> Any:
    layers, ops = keras.layers, keras.ops
    embed = keras.Sequential([keras.Input((8,)), layers.Dense(6, "relu"), layers.Dense(4)])
    seed_weights(embed)

    class Distances(layers.Layer):
        def call(self, anchor: Any, positive: Any, negative: Any) -> Any:
            near, far = ops.square(anchor - positive), ops.square(anchor - negative)
            return ops.sum(near, -1), ops.sum(far, -1)

    inputs = [keras.Input((8,), name=n) for n in ("anchor", "positive", "negative")]
    network = keras.Model(inputs, Distances()(*[embed(i) for i in inputs]))

    class Siamese(keras.Model):
        def __init__(self, network: Any) -> None:
            super().__init__()
            self.network = network
            self.tracker = keras.metrics.Mean(name="loss")

        def call(self, inputs: Any) -> Any:
            return self.network(inputs)

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ) -> Any:
            loss = ops.mean(ops.maximum(y_pred[0] - y_pred[1] + 0.5, 0.0))
            self.tracker.update_state(loss)
            return loss

        @property
        def metrics(self) -> Any:
            return [self.tracker]

    model = Siamese(network)
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    x = data(32, 8)
    return numbers(model.fit([x, x * 0.9, x[::-1].copy()], **ORDERED))


@script
def frozen_base(keras: Any) -> Any:
    layers = keras.layers
    base = keras.Sequential(
        [keras.Input((6, 6, 3)), layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization()]
    )
    base.trainable = False
    image = keras.Input((6, 6, 3))
    x = base(layers.Rescaling(1 / 127.5, offset=-1)(image), training=False)
    model = keras.Model(image, layers.Dense(1)(layers.GlobalAveragePooling2D()(x)))
    seed_weights(model)
    x, y = abs(data(32, 6, 6, 3)) * 100, (np.arange(32) % 2).astype("float32")[:, None]
    model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
    frozen = len(model.trainable_weights)
    history = numbers(model.fit(x, y, **ORDERED))
    base.trainable = True
    return history, frozen, len(model.trainable_weights)


@script
def masked_texts(keras: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(50, 6, mask_zero=True),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
            layers.Bidirectional(layers.GRU(3)),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    seed_weights(model)
    texts = [np.random.default_rng(i).integers(1, 50, 3 + i % 7) for i in range(24)]
    x, y = keras.utils.pad_sequences(texts, maxlen=8), np.arange(24)[:, None] % 2
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return numbers(model.fit(x, y, validation_data=(x[:8], y[:8]), **ORDERED))


@script
def several_inputs_and_outputs(keras: Any) -> Any:
    layers, losses = keras.layers, keras.losses
    title, tags = keras.Input((None,), name="title", dtype="int32"), keras.Input((4,), name="tags")
    x = layers.concatenate([layers.LSTM(6)(layers.Embedding(20, 5)(title)), tags])
    outputs = {"priority": layers.Dense(1, name="p")(x), "kind": layers.Dense(3, name="k")(x)}
    model = keras.Model([title, tags], outputs)
    seed_weights(model)
    model.compile(
        keras.optimizers.RMSprop(0.001),
        loss={
            "priority": losses.BinaryCrossentropy(from_logits=True),
            "kind": losses.CategoricalCrossentropy(from_logits=True),
        },
        loss_weights={"priority": 1.0, "kind": 0.2},
        metrics={"kind": ["accuracy"]},
    )
    x = {"title": np.random.default_rng(0).integers(0, 20, (32, 7)), "tags": data(32, 4)}
    y = {
        "priority": (np.arange(32) % 2).astype("float32")[:, None],
        "kind": keras.utils.to_categorical(np.arange(32) % 3, 3),
    }
    return numbers(model.fit(x, y, **ORDERED))


@script
def forecast_with_callbacks(keras: Any) -> Any:
    series = np.sin(np.arange(60) / 4).astype("float32")[:, None]
    x, y = np.stack([series[i : i + 8] for i in range(48)]), series[8:56]
    steps = keras.Input((8, 1))
    model = keras.Model(steps, keras.layers.Dense(1)(keras.layers.LSTM(6)(steps)))
    seed_weights(model)
    schedule = keras.optimizers.schedules.CosineDecay(0.02, 12)
    model.compile(keras.optimizers.Adam(schedule), "mse")
    stop = keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
    return numbers(model.fit(x, y, validation_split=0.25, callbacks=[stop], **ORDERED))


@script
def metrics_and_layers_of_ones_own(keras: Any) -> Any:
    ops = keras.ops

    class Hits(keras.metrics.Metric):
        def __init__(self, name: str = "hits", **options: Any) -> None:
            super().__init__(name=name, **options)
            self.total = self.add_variable(shape=(), initializer="zeros", name="total")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            same = ops.equal(ops.reshape(y_true, (-1,)), ops.argmax(y_pred, axis=1))
            hits = ops.cast(same, "float32")
            if sample_weight is not None:
                hits = hits * ops.cast(sample_weight, "float32")
            self.total.assign(self.total + ops.sum(hits))

        def result(self) -> Any:
            return self.total

        def reset_state(self) -> None:
            self.total.assign(0.0)

    class Linear(keras.layers.Layer):
        def __init__(self, units: int) -> None:
            super().__init__()
            self.units = units

        def build(self, shape: Any) -> None:
            self.w = self.add_weight(
                shape=(shape[-1], self.units), initializer="ones", regularizer="l2"
            )
            self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, x: Any) -> Any:
            self.seen.assign_add(ops.sum(x) * 0.001)
            return ops.matmul(x, self.w)

    x = keras.Input((5,))
    model = keras.Model(x, Linear(3)(ops.relu(Linear(6)(x))))
    seed_weights(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=[Hits()])
    weights = np.linspace(0.5, 1, 32)
    y = np.arange(32, dtype="int64") % 3
    history = numbers(model.fit(data(32, 5), y, sample_weight=weights, **ORDERED))
    return history, [float(np.sum(w)) for w in model.get_weights()]


@script
def teacher_and_student(keras: Any) -> Any:
    layers, ops = keras.layers, keras.ops

    class Distiller(keras.Model):
        def __init__(self, student: Any, teacher: Any) -> None:
            super().__init__()
            self.student, self.teacher = student, teacher
            self.hard = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            self.soft = keras.losses.KLDivergence()

        def call(self, x: Any) -> Any:
            return self.student(x)

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ) -> Any:
            wanted = ops.softmax(self.teacher(x, training=False) / 3.0, axis=1)
            soft = self.soft(wanted, ops.softmax(y_pred / 3.0, axis=1)) * 9.0
            return 0.1 * self.hard(y, y_pred) + 0.9 * soft

    def network(units: int) -> Any:
        return keras.Sequential([keras.Input((6,)), layers.Dense(units, "relu"), layers.Dense(3)])

    teacher, student = network(12), network(4)
    seed_weights(teacher, student)
    teacher.trainable = False
    model = Distiller(student, teacher)
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    model.compile(keras.optimizers.Adam(0.01), metrics=[accuracy])
    x, y = data(32, 6), np.arange(32)[:, None] % 3
    history = numbers(model.fit(x, y, **ORDERED))
    return history, [float(v) for v in model.evaluate(x, y, verbose=0, batch_size=8)]


@script
def states_between_models(keras: Any) -> Any:
    layers = keras.layers
    source, target = keras.Input((None, 5)), keras.Input((None, 4))
    _, h, c = layers.LSTM(6, return_state=True)(source)
    decoder = layers.LSTM(6, return_sequences=True, return_state=True)
    choose = layers.Dense(4, activation="softmax")
    model = keras.Model([source, target], choose(decoder(target, initial_state=[h, c])[0]))
    seed_weights(model)
    model.compile("rmsprop", "categorical_crossentropy")
    x = [data(16, 6, 5), data(16, 7, 4)]
    y = keras.utils.to_categorical(np.arange(16 * 7).reshape(16, 7) % 4, 4)
    history = numbers(model.fit(x, y, **ORDERED))
    encoder, states = keras.Model(source, [h, c]), [keras.Input((6,)), keras.Input((6,))]
    step = keras.Model([target, *states], choose(decoder(target, initial_state=states)[0]))
    given = list(encoder.predict(x[0], verbose=0))
    return history, step.predict([x[1][:, :1], *given], verbose=0)[:2].tolist()


if __name__ == "__main__":
    import keras

    GOLDENS.write_text(json.dumps({name: run(keras) for name, run in SCRIPTS.items()}))

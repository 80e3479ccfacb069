"""Texts that grow token by token: the same as recomputing them whole, whatever the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import ops
from meganeura.backend import backend_object
from meganeura.zoo.gpt2 import GPT2Config, gpt2
from meganeura.zoo.llama import LlamaConfig, llama
from meganeura.zoo.sampling import Sampling, keep_top_k, keep_top_p, next_tokens, penalise
from meganeura.zoo.whisper import WhisperConfig, whisper

VOCABULARY = 61
SMALL = {
    "vocabulary": VOCABULARY, "width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_width": 8,
    "inner": 48,
}  # fmt: skip


def weighted(model: Any) -> Any:
    """Weights that are large enough for texts to be lively."""
    rng = np.random.default_rng(5)
    for v in model.weights:
        if len(v.shape) > 1:
            v.assign(rng.normal(0, 1.5 / np.sqrt(v.shape[-2]), v.shape))
    return model


def models() -> dict[str, Any]:
    return {
        "llama": lambda: llama(LlamaConfig(**SMALL)),
        "window": lambda: llama(LlamaConfig(**SMALL, window=6)),
        "alternating": lambda: llama(
            LlamaConfig(
                **SMALL,
                windows=(5, None),
                rotary=((1e4, None), (1e6, None)),
                attention_softcap=20.0,
                logit_softcap=30.0,
                post_norms=True,
                tied_head=False,
            )  # fmt: skip
        ),
        "gpt2": lambda: gpt2(
            GPT2Config(VOCABULARY, positions=64, width=32, layers=2, heads=4, inner=48)
        ),
    }


def recomputed(model: Any, prompt: list[int], count: int) -> list[int]:
    """The greedy text, all of it computed anew for each token."""
    text = list(prompt)
    for _ in range(count):
        room = np.zeros((1, 32), "int32")
        room[0, : len(text)] = text
        text.append(int(np.argmax(np.asarray(model(room, training=False))[0, len(text) - 1])))
    return text


@pytest.mark.parametrize("kind", sorted(models()))
def test_cached_texts_are_recomputed_texts(kind: str) -> None:
    model = weighted(models()[kind]())
    prompts = [[7, 3, 11, 2, 50, 21, 9, 33, 4, 17, 8], [5], [60, 1, 44]]
    alone = [model.generate(p, 14) for p in prompts]
    for prompt, found in zip(prompts, alone, strict=True):
        assert found.tolist() == recomputed(model, prompt, 14)
    together = model.generate(prompts, 14, tokens_per_submission=5)
    for one, found in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, found)
    assert len(set(np.concatenate(alone))) > 6, "the texts are too dull to tell anything"


def test_decoders_listen_once() -> None:
    config = WhisperConfig(
        mels=6, positions=10, width=32, layers=1, heads=2, inner=48, vocabulary=VOCABULARY,
        text_positions=40, text_layers=2, text_heads=2, text_inner=48,
    )  # fmt: skip
    model = weighted(whisper(config))
    mel = np.random.default_rng(0).normal(size=(2, 20, 6)).astype("float32")
    found = model.generate([[1, 2], [3]], 9, inputs={"mel": mel})
    for row, text in enumerate(found):
        whole = np.asarray(model({"ids": text[None], "mel": mel[row : row + 1]}, training=False))
        start = 2 - row
        np.testing.assert_array_equal(text[start:], np.argmax(whole[0], -1)[start - 1 : -1])
    with pytest.raises(ValueError, match="'mel'"):
        model.generate([1], 2)


def test_one_plan_and_no_growth() -> None:
    model = weighted(llama(LlamaConfig(**SMALL)))
    model.generate([[1, 2, 3], [4]], 10)
    session = model._generation[1]
    held = session.decoding.bytes
    step = session._step
    model.generate([[1, 2, 3], [4, 5]], 60, temperature=0.0)
    assert model._generation[1] is session
    assert session._step is step
    assert session.plans == 2
    assert session.decoding.bytes == held == 2 * 2 * 2 * 2 * 128 * 8 * 4


def test_a_step_allocates_nothing() -> None:
    if backend_object().name != "wgpu":
        pytest.skip("NumPy arrays come and go")
    model = weighted(llama(LlamaConfig(**SMALL)))
    model.generate([1, 2, 3], 4)
    session, pool = model._generation[1], backend_object().pool
    before = pool.statistics() if hasattr(pool, "statistics") else None
    groups = [len(g) for g in session._step.executable._groups]
    session.advance(40)
    assert [len(g) for g in session._step.executable._groups] == groups
    if before is not None:
        assert pool.statistics() == before


def test_stop_tokens_padding_and_callbacks() -> None:
    model = weighted(llama(LlamaConfig(**SMALL)))
    prompts = np.array([[7, 3, 11], [5, 6, 8]])
    free = model.generate(prompts, 20)
    stop = int(free[0, 6])
    first = int(np.argmax(free[0, 3:] == stop))
    stopped = model.generate(prompts, 20, stop_tokens=stop, pad_token=59)
    np.testing.assert_array_equal(stopped[0, : 4 + first], free[0, : 4 + first])
    assert (stopped[0, 4 + first :] == 59).all()
    pieces: list[np.ndarray] = []
    model.generate(prompts, 7, callback=pieces.append)
    assert [p.shape for p in pieces] == [(2, 1)] * 7
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), free[:, 3:10])
    heard = []
    short = model.generate(prompts, 20, callback=lambda new: len(heard) > 1 or heard.append(new))
    assert short.shape == (2, 6)


def test_drawn_texts_follow_the_seed() -> None:
    model = weighted(llama(LlamaConfig(**SMALL)))
    settings = {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2}
    one = model.generate([3, 4], 25, seed=1, **settings)
    np.testing.assert_array_equal(one, model.generate([3, 4], 25, seed=1, **settings))
    assert one.tolist() != model.generate([3, 4], 25, seed=2, **settings).tolist()
    flat = llama(LlamaConfig(**SMALL))
    flat.set_weights([0 * w for w in flat.get_weights()])
    draws = flat.generate([[3], [3]], 25, temperature=1.0, seed=4)
    assert min(len(set(row[1:].tolist())) for row in draws) > 12  # of 61, each as likely
    assert draws[0].tolist() != draws[1].tolist()
    # a single token to choose from is the likeliest one
    greedy = model.generate([3, 4], 12).tolist()
    assert model.generate([3, 4], 12, temperature=3.0, top_k=1).tolist() == greedy
    assert model.generate([3, 4], 12, temperature=3.0, top_p=1e-6).tolist() == greedy


def test_what_sampling_keeps() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 3, (4, 200)).astype("float32")
    kept = np.asarray(keep_top_k(logits, 7.0)) > -1e29
    for row, keep in zip(logits, kept, strict=True):
        assert set(np.flatnonzero(keep)) == set(np.argsort(-row)[:7])
    kept = np.asarray(keep_top_p(logits, 0.8)) > -1e29
    for row, keep in zip(logits.astype("float64"), kept, strict=True):
        p = np.exp(row - row.max())
        order = np.argsort(-p)
        enough = int(np.argmax(np.cumsum(p[order] / p.sum()) >= 0.8)) + 1
        assert set(np.flatnonzero(keep)) == set(order[:enough])
    seen = np.zeros((1, 3), bool)
    seen[0, :2] = True
    found = np.asarray(penalise(np.array([[2.0, -2.0, 1.0]], "float32"), seen, 2.0))
    np.testing.assert_allclose(found, [[1.0, -4.0, 1.0]])


def test_draws_have_the_distribution_of_the_logits() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], "float32"))
    rows = np.broadcast_to(logits, (4000, 4)).copy()
    sampling = Sampling.of(1.0, None, None, 1.0)

    @mg.function
    def draw(x: Any, words: Any) -> Any:
        return next_tokens(x, sampling, ops.convert_to_tensor(sampling.numbers()), words, None)

    tokens = np.asarray(draw(rows, np.array([9, 0], "uint32")))
    np.testing.assert_allclose(np.bincount(tokens) / 4000, np.exp(logits), atol=0.025)


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ([], {}, "at least one"),
        ([[1], []], {}, "at least one"),
        ([1.5], {}, "whole numbers"),
        ([1], {"max_new_tokens": 0}, "max_new_tokens"),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"top_k": 0}, "top_k"),
        ([1], {"top_p": 1.5}, "top_p"),
        ([1], {"repetition_penalty": 0.0}, "repetition_penalty"),
        ([1], {"inputs": {"sound": np.zeros(1)}}, "'sound'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    prompt: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        llama(LlamaConfig(**SMALL)).generate(prompt, **settings)


def test_models_for_packed_texts_do_not_write() -> None:
    with pytest.raises(ValueError, match="packed=True"):
        llama(LlamaConfig(**SMALL), packed=True).generate([1, 2], 3)


def test_learnt_positions_end() -> None:
    model = gpt2(GPT2Config(VOCABULARY, positions=16, width=32, layers=1, heads=4, inner=48))
    with pytest.raises(ValueError, match="16 positions"):
        model.generate([1, 2, 3], 20)


def test_language_models_are_saved_and_loaded(tmp_path: Any) -> None:
    model = weighted(llama(LlamaConfig(**SMALL)))
    model.save(tmp_path / "model.keras")
    again = mg.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.generate([3, 1], 8), model.generate([3, 1], 8))

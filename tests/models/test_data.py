"""Sources of batches by themselves: order, ends, reuse of tensors."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura.data import checks, sources
from meganeura.data.arrays import HostBatches, ResidentArrays, not_finite
from meganeura.data.batch import fill, pack, structured, unpack
from meganeura.data.dataset import read_ahead
from meganeura.data.streams import Stream

X = np.arange(20, dtype="float32").reshape(10, 2)
Y = np.arange(10)


def test_resident_arrays_give_runs_of_equal_batches() -> None:
    source = ResidentArrays((X, Y, None), 4, False)
    assert source.batches == 3
    assert source.begin()
    batch, count = source.next(10) or (None, 0)
    assert (batch.size, count) == (4, 2)
    rest, count = source.next(10) or (None, 0)
    assert (rest.size, count) == (2, 1)
    assert source.next(10) is None
    assert batch.tensors is rest.tensors and batch.key != rest.key


def test_a_pass_that_was_left_goes_on() -> None:
    source = ResidentArrays((X, Y, None), 3, True)
    source.begin()
    order = source.order.numpy()
    assert source.next(2)[1] == 2
    source.begin()
    np.testing.assert_array_equal(source.order.numpy(), order)
    assert source.next(2)[1] == 1
    source.reset()
    source.begin()
    assert source.next(9)[1] == 3
    assert sorted(order) == list(range(10))


def test_a_batch_larger_than_the_data_is_all_of_it() -> None:
    source = ResidentArrays((X, None, None), 64, False)
    source.begin()
    batch, count = source.next(5)
    assert (batch.size, count, source.next(5)) == (10, 1, None)


def test_streams_alternate_between_two_sets_of_tensors() -> None:
    stream = Stream([(X[:4] + i, Y[:4]) for i in range(5)])
    assert stream.batches == 5
    stream.begin()
    seen = [stream.next(1)[0] for _ in range(5)]
    assert stream.next(1) is None
    assert len({id(b) for b in seen}) == 2
    assert all(a is not b for a, b in zip(seen, seen[1:], strict=False))
    np.testing.assert_array_equal(seen[-1].tensors[0].numpy(), X[:4] + 4)
    np.testing.assert_array_equal(seen[-2].tensors[0].numpy(), X[:4] + 3)


def test_a_peeked_batch_is_not_lost() -> None:
    stream = Stream(iter([(X[:1], Y[:1]), (X[1:2], Y[1:2])]))
    first = stream.peek()
    assert stream.peek() is first
    stream.begin()
    assert stream.next(1)[0] is first
    assert stream.next(1)[0] is not first
    assert stream.next(1) is None
    assert not stream.begin()


def test_shapes_that_keep_changing_do_not_pile_up() -> None:
    stream = Stream((np.zeros((i, 2), "float32"),) for i in range(1, 60))
    stream.begin()
    while stream.next(1) is not None:
        assert len(stream._sets) <= 16


def test_host_batches_shuffle_every_pass() -> None:
    batches = HostBatches((X, Y, None), 4, True)
    np.random.seed(0)

    def one_pass() -> list[Any]:
        batches.on_epoch_begin()
        return list(read_ahead(batches, shuffle=False))

    passes = [np.concatenate([y for _, y, _ in one_pass()]) for _ in range(3)]
    assert all(sorted(p) == list(range(10)) for p in passes)
    assert any(np.any(passes[0] != p) for p in passes[1:])
    assert [len(x) for x, _, _ in one_pass()] == [4, 4, 2]


class Slow(mg.utils.PyDataset):
    """Later batches are ready sooner."""

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self.threads: set[str] = set()
        self.ahead = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        self.threads.add(threading.current_thread().name)
        self.ahead = max(self.ahead, index)
        time.sleep(0.002 * (8 - index))
        return index


def test_threads_read_ahead_and_keep_the_order() -> None:
    data = Slow(workers=4, max_queue_size=3)
    found = []
    for index in read_ahead(data, shuffle=False):
        found.append(index)
        assert data.ahead <= index + 3
    assert found == list(range(8))
    assert len(data.threads) > 1
    assert all(name.startswith("meganeura-data") for name in data.threads)


def test_threads_end_when_a_pass_is_left() -> None:
    before = threading.active_count()
    batches = read_ahead(Slow(workers=3), shuffle=True)
    next(batches)
    batches.close()
    assert threading.active_count() == before


class Numbered(mg.utils.PyDataset):
    """Tells which process made a batch, and how often the data set was changed before."""

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self.changes = 0
        self.held: Any = None

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == self.held:
            os._exit(1)
        return index, os.getpid(), self.changes, mg.backend.backend()


def test_processes_read_ahead_and_hear_of_changes() -> None:
    data = Numbered(workers=2, use_multiprocessing=True)
    stream = Stream(data)
    processes = []
    for changes in (0, 0, 1):
        data.changes = changes
        found = list(stream._fresh())
        assert [f[0] for f in found] == [0, 1, 2, 3]
        assert {f[2] for f in found} == {changes}
        assert {f[3] for f in found} == {"numpy"}
        processes.append({f[1] for f in found})
    stream.close()
    assert os.getpid() not in set().union(*processes)
    assert not processes[1] & processes[2]  # those with the old copy have ended


def test_processes_that_cannot_work_are_told_of() -> None:
    data = Numbered(workers=1, use_multiprocessing=True)
    data.held = threading.Lock()
    with pytest.raises(ValueError, match="Numbered: use_multiprocessing=True copies"):
        list(read_ahead(data, shuffle=False))
    data.held = 2
    with pytest.raises(RuntimeError, match="Numbered: a worker process ended"):
        list(read_ahead(data, shuffle=False))


def test_a_pass_that_is_left_asks_for_nothing_more() -> None:
    data = Slow(workers=1, max_queue_size=8)
    stream = Stream(data)
    stream.begin()
    iterator = stream._iterator
    assert iterator is not None and next(iterator) == 0
    iterator.close()  # type: ignore[attr-defined]
    stream.close()
    assert data.ahead <= 2


def test_what_pydataset_refuses() -> None:
    with pytest.raises(ValueError, match="workers must be at least 0"):
        mg.utils.PyDataset(workers=-1)
    with pytest.raises(NotImplementedError, match="must define __len__"):
        len(mg.utils.PyDataset())


def test_structures_come_back() -> None:
    tree = ({"a": 1, "b": [2, None]}, 3, None)
    structure, leaves = structured(tree)
    assert leaves == [1, 2, 3]
    assert fill(structure, ["x", "y", "z"]) == ({"a": "x", "b": ["y", None]}, "z", None)
    assert unpack([X, Y])[1] is Y
    assert pack((X, None, None)) == (X,)
    assert len(pack((X, Y, None))) == 2


def test_the_split_takes_the_last_rows() -> None:
    (x, y, w), (vx, vy, vw) = checks.split({"a": X}, Y, None, 0.25)
    np.testing.assert_array_equal(y, np.arange(7))
    np.testing.assert_array_equal(vx["a"], X[7:])
    assert w is None and vw is None and len(vy) == 3 and len(x["a"]) == 7


def test_weights_of_classes() -> None:
    expected = [1.0, 5.0, 2.0]
    for y in (np.array([0, 1, 2]), np.array([[0], [1], [2]]), np.eye(3)):
        np.testing.assert_array_equal(checks.class_weights(y, {1: 5.0, 2: 2.0}), expected)


def test_where_data_stop_being_finite() -> None:
    bad = X.copy()
    bad[6, 1] = np.inf
    assert not_finite([Y, X]) is None
    assert (
        not_finite([Y, bad]) == "array 1 of the data, of shape (10, 2), is not finite in sample 6"
    )


def test_the_choice_of_a_source() -> None:
    def kind(x: Any, y: Any = None) -> type:
        return type(sources.make(x, y, None, batch_size=None))

    assert kind(X, Y) is ResidentArrays
    assert kind([X, X], {"a": Y}) is ResidentArrays
    assert kind(iter([X])) is Stream
    assert kind(Slow()) is Stream

"""The NumPy engine: threads, flat buffers, dropout masks."""

import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from glassbert.arrays import FlatArrays, FlatGradients, Layout, ThreadGradients
from glassbert.engines import threads
from glassbert.engines.machine import usable_cores
from glassbert.engines.numpy_engine import NumpyDropout, NumpyEngine
from glassbert.engines.threads import run_together, using_threads

LAYOUT = Layout({"a": (3, 5), "b": (7,), "table": (10, 2)})


# ---- dropout -------------------------------------------------------------------------------------------------------


def test_masks_are_a_function_of_seed_name_and_row():
    draw = NumpyDropout(5).mask("layers.0.dropout", (6, 4, 9), 0.3)
    np.testing.assert_array_equal(draw, NumpyDropout(5).mask("layers.0.dropout", (6, 4, 9), 0.3))
    for other in (NumpyDropout(6).mask("layers.0.dropout", (6, 4, 9), 0.3), NumpyDropout(5).mask("x", (6, 4, 9), 0.3)):
        assert (draw != other).any()
    assert (draw[0] != draw[1]).any()


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_part_of_a_batch_gets_the_masks_it_would_get_in_the_whole(cut):
    whole = NumpyDropout(5).mask("name", (6, 4, 9), 0.3)
    source = NumpyDropout(5)
    parts = [source.mask("name", (cut, 4, 9), 0.3), source.from_row(cut).mask("name", (6 - cut, 4, 9), 0.3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(source.mask("name", (6 - cut, 4, 9), 0.3, row=cut), parts[1])


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_masks_drop_the_share_they_are_asked_to(rate):
    mask = NumpyDropout(1).mask("name", (20, 100, 501), rate)
    assert mask.dtype == np.bool_ and mask.shape == (20, 100, 501)
    error = np.sqrt(rate * (1 - rate) / mask.size)
    assert 1 - mask.mean() == pytest.approx(rate, abs=5 * error + 1e-5)
    for axis in (0, 2):  # no row and no column is treated differently
        shares = 1 - mask.mean(axis=tuple(i for i in range(3) if i != axis))
        assert np.abs(shares - rate).max() < 6 * np.sqrt(rate * (1 - rate) / (mask.size / len(shares)))


def test_masks_of_neighbouring_rows_and_names_are_independent():
    mask = NumpyDropout(1).mask("a", (2, 40_000), 0.5)
    other = NumpyDropout(1).mask("b", (2, 40_000), 0.5)
    for one, two in ((mask[0], mask[1]), (mask[0], other[0]), (mask[0, :-1], mask[0, 1:])):
        assert (one == two).mean() == pytest.approx(0.5, abs=0.015)


# ---- splitting a batch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("batch", [1, 2, 3, 8, 31])
def test_a_batch_is_split_into_whole_rows_without_gap_or_overlap(batch, threads):
    rng = np.random.default_rng(batch)
    for tokens in (None, rng.integers(0, 100, batch), np.r_[1000, np.zeros(batch - 1, int)]):
        parts = NumpyEngine(threads=threads).split(batch, tokens)
        assert len(parts) == min(threads, batch)
        assert [row for part in parts for row in range(part.start, part.stop)] == list(range(batch))
        assert all(part.stop > part.start for part in parts)


def test_parts_have_about_the_same_number_of_tokens():
    tokens = np.array([100, 1, 1, 1, 1, 1, 50, 45])
    first, second = NumpyEngine(threads=2).split(8, tokens)
    assert tokens[first].sum() == pytest.approx(tokens[second].sum(), abs=10)


# ---- threads -------------------------------------------------------------------------------------------------------


def test_tasks_run_side_by_side_and_results_are_in_order():
    meeting = threading.Barrier(3, timeout=10)

    def task(i):
        meeting.wait()  # passes only if all three are running at once
        return i

    with using_threads(3):
        assert run_together(task, range(3)) == [0, 1, 2]


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_an_error_in_any_task_comes_out_and_the_others_finish(culprit):
    done = []

    def task(i):
        if i == culprit:
            raise RuntimeError(f"task {i}")
        done.append(i)

    with pytest.raises(RuntimeError, match=f"task {culprit}"):
        run_together(task, range(3))
    assert sorted(done) == [i for i in range(3) if i != culprit]
    assert run_together(abs, [-1, -2]) == [1, 2]


def test_tasks_keep_the_error_settings_of_the_caller():
    with using_threads(3), np.errstate(divide="ignore", over="raise"):
        assert (
            run_together(lambda i: (np.geterr()["divide"], np.geterr()["over"]), range(3)) == [("ignore", "raise")] * 3
        )


def test_tasks_inside_tasks_do_not_wait_for_each_other():
    def outer(i):
        return run_together(lambda j: (i, j), range(2))

    assert run_together(outer, range(2)) == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


def threads_of_blas() -> set[int]:
    """The limits of the BLAS libraries of the engine: another package may have loaded one of its own since."""
    return {library.get_num_threads() for library in threads._blas().lib_controllers}


@pytest.fixture
def two_threads_of_blas():
    with threadpool_limits(2, user_api="blas"):
        yield threads_of_blas()


def limited() -> set[int]:
    with using_threads(1):
        return threads_of_blas()


def test_any_thread_limits_blas(two_threads_of_blas):
    """threadpoolctl 3.8 ignores every thread but the first that set a limit."""
    with ThreadPoolExecutor(1) as other:
        for call in (limited, lambda: other.submit(limited).result(timeout=60), limited):
            assert call() <= {1}
            assert threads_of_blas() == two_threads_of_blas <= {2}


def test_the_thread_that_leaves_last_restores_what_another_one_limited(two_threads_of_blas):
    entered, may_leave = threading.Event(), threading.Event()

    def stay():
        with using_threads(1):
            entered.set()
            assert may_leave.wait(60)
            return threads_of_blas()

    with ThreadPoolExecutor(1) as other:
        with using_threads(1):
            staying = other.submit(stay)
            assert entered.wait(60)
        assert threads_of_blas() <= {1}
        may_leave.set()
        assert staying.result(timeout=60) <= {1}
    assert threads_of_blas() == two_threads_of_blas


def test_the_engine_uses_all_cores_unless_told_otherwise():
    assert NumpyEngine().threads == usable_cores() >= 1
    assert NumpyEngine(threads=3).threads == 3


def test_plain_kernels_run_in_the_calling_thread_with_the_threads_of_blas():
    plain = NumpyEngine(kernels="plain")
    assert plain.threads == 1 and not plain.limits_blas
    assert NumpyEngine(kernels="plain", threads=2).threads == 2 and NumpyEngine(kernels="plain", threads=2).limits_blas
    assert NumpyEngine().limits_blas


@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_an_engine_survives_pickling(kernels):
    engine = NumpyEngine("float64", 2, kernels)
    again = pickle.loads(pickle.dumps(engine))
    assert (again.dtype_name, again.threads, again.kernels) == ("float64", 2, kernels)
    assert again.ops.forward_and_backward("gelu") == engine.ops.forward_and_backward("gelu")


# ---- buffers of parameters and gradients ---------------------------------------------------------------------------


def test_named_arrays_are_views_into_one_buffer():
    arrays = FlatArrays(LAYOUT, np.dtype("float32"))
    arrays["a"] = np.arange(15).reshape(3, 5)
    assert arrays.flat.sum() == np.arange(15).sum()
    arrays.flat[:] = 2
    assert (arrays["b"] == 2).all() and np.shares_memory(arrays["b"], arrays.flat)
    assert list(arrays) == ["a", "b", "table"] and len(arrays) == 3
    assert all(LAYOUT.offsets[name] % 16 == 0 for name in arrays)


def test_contributions_add_up_in_any_order():
    ones, rows = np.ones((10, 2)), np.full((2, 2), 5.0)
    index = np.array([1, 4])
    expected = ones.copy()
    expected[index] += 5
    for dense_first in (True, False):
        gradients = FlatGradients(LAYOUT, np.dtype("float64"))
        for step in range(3):  # memory is used again
            gradients.clear()
            if dense_first:
                gradients.add("table", ones)
                gradients.add_rows("table", index, rows)
            else:
                gradients.add_rows("table", index, rows)
                gradients.add("table", ones)
            gradients.fill_missing()
            np.testing.assert_array_equal(gradients["table"], expected, err_msg=f"step {step}")


def test_a_gradient_without_contribution_is_zero_also_when_memory_is_used_again():
    gradients = FlatGradients(LAYOUT, np.dtype("float64"))
    gradients.add("a", np.ones((3, 5)))
    gradients.add("b", np.ones(7))
    gradients.add_rows("table", np.array([3]), np.ones((1, 2)))
    gradients.fill_missing()
    gradients.clear()
    gradients.add("b", np.full(7, 2.0))
    gradients.add_rows("table", np.array([5]), np.ones((1, 2)))
    gradients.fill_missing()
    assert not gradients["a"].any()
    assert gradients["b"].sum() == 14
    assert gradients["table"].sum() == 2 and gradients["table"][5].all()


def test_the_first_contribution_may_be_written_in_place():
    gradients = FlatGradients(LAYOUT, np.dtype("float64"))
    buffer = gradients.buffer_for("a")
    buffer[...] = 3
    gradients.add("a", buffer)
    assert gradients.buffer_for("a") is None  # the next one must be added
    gradients.add("a", np.ones((3, 5)))
    assert (gradients["a"] == 4).all()


def test_the_gradients_of_a_thread_collect_rows_and_add_the_rest():
    of_thread, target = ThreadGradients(LAYOUT, np.dtype("float64")), FlatGradients(LAYOUT, np.dtype("float64"))
    of_thread.add("a", np.ones((3, 5)))
    of_thread.add_rows("table", np.array([0]), np.ones((1, 2)))
    target.add("a", np.ones((3, 5)))
    of_thread.add_to(target, ["a", "b"])
    assert (target["a"] == 2).all() and not target["b"].any()
    assert [name for name, _, _ in of_thread.rows] == ["table"]
    of_thread.clear()
    assert not of_thread.rows


def test_arrays_have_the_engine_s_precision():
    for dtype in ("float32", "float64"):
        engine = NumpyEngine(dtype)
        assert engine.array([1, 2]).dtype == dtype and engine.integers([1.0]).dtype.kind == "i"
        assert engine.parameters(LAYOUT)["a"].dtype == engine.gradients(LAYOUT)["a"].dtype == dtype


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes can be forked")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    assert run_together(abs, [-1, -2]) == [1, 2]  # the parent's pool is running
    child = os.fork()
    if child == 0:
        os._exit(0 if run_together(abs, [-3, -4]) == [3, 4] else 1)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child waits for threads of its parent")
    assert status == 0

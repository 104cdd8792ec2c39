"""What the program finds out about a machine."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from glassbert.engines import NumpyEngine, machine
from glassbert.engines.machine import Mlx, choose_engine, recommended_engine
from glassbert.engines.threads import threads_to_use


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_this_machine_is_described_and_fits_into_json():
    facts = machine.inspect_machine()
    json.dumps(dataclasses.asdict(facts))
    assert facts.numpy == np.__version__
    assert 1 <= facts.usable_cores <= facts.logical_cores
    assert facts.missing_packages == ()
    if facts.usable_memory is not None:
        assert facts.usable_memory <= facts.memory


@pytest.mark.parametrize(
    ("mlx", "engine"),
    [
        (Mlx(installed=False), "numpy"),
        (Mlx(installed=True, backend="cpu", cpu_reference_build=True), "numpy"),
        (Mlx(installed=True, import_error="libcuda is missing"), "numpy"),
        (Mlx(installed=True, backend="metal"), "mlx"),
        (Mlx(installed=True, backend="cuda"), "mlx"),
    ],
)
def test_auto_means_mlx_on_a_gpu_and_numpy_elsewhere(mlx, engine):
    choice = choose_engine(mlx)
    assert choice.name == engine
    assert choice.reason.endswith(".")


def test_the_recommendation_is_a_plain_name(monkeypatch):
    monkeypatch.setattr(machine, "inspect_mlx", lambda: Mlx(installed=True, backend="metal"))
    assert recommended_engine() == "mlx"
    monkeypatch.setattr(machine, "inspect_mlx", lambda: Mlx(installed=False))
    assert recommended_engine() == "numpy"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_given_size_and_number_of_threads_are_measured(dtype, monkeypatch):
    limits, shapes = [], set()
    original_limits, original_matmul = machine.threadpool_limits, np.matmul

    def watch_limits(**options):
        limits.append(options["limits"])
        return original_limits(**options)

    def watch_matmul(left, right, out):
        shapes.add((left.shape, right.shape, str(left.dtype), str(out.dtype)))
        return original_matmul(left, right, out=out)

    monkeypatch.setattr(machine, "threadpool_limits", watch_limits)
    monkeypatch.setattr(np, "matmul", watch_matmul)
    assert machine.measure_matmul_rate(dtype, threads=1, size=48, seconds=0) > 0
    assert limits == [1]
    assert shapes == {((48, 48), (48, 48), dtype, dtype)}


def test_the_rate_is_the_median_and_the_size_grows_until_it_can_be_timed(monkeypatch):
    clock = [0.0]
    durations = iter([0.001, 0.007, 0.010, 0.010, 0.500])  # two to find the size, then three rounds
    monkeypatch.setattr(machine.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(machine, "_duration", lambda action: next(durations))
    sizes = []

    def prepare(n):
        sizes.append(n)
        return lambda: None

    rate = machine._median_rate(prepare, None, seconds=0)
    assert sizes == [128, 256]
    assert rate == pytest.approx(2 * 256**3 / 0.010 / 1e9)


def test_mlx_is_measured_where_it_is_installed():
    pytest.importorskip("mlx.core")
    assert machine.measure_mlx_matmul_rate("float32", size=32, seconds=0) > 0


def test_control_groups_of_version_2_limit_through_their_ancestors(tmp_path):
    membership = tmp_path / "membership"
    membership.write_text("0::/outer/inner\n")
    root = tmp_path / "cgroup"
    write(root / "outer", cpu__max="150000 100000", memory__max="max")
    write(root / "outer" / "inner", cpu__max="max 100000", memory__max="1048576")
    folders = list(machine.cgroup_folders("cpu", root, membership))
    assert folders == [root / "outer" / "inner", root / "outer", root]
    assert [machine.cgroup_cores(folder) for folder in folders] == [None, 1.5, None]
    assert [machine.cgroup_memory(folder) for folder in folders] == [1048576, None, None]


def test_control_groups_of_version_1_keep_a_tree_for_each_controller(tmp_path):
    membership = tmp_path / "membership"
    membership.write_text("4:memory:/job\n1:cpu,cpuacct:/\n")
    root = tmp_path / "cgroup"
    write(root / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(root / "memory" / "job", memory__limit_in_bytes="2097152")
    assert list(machine.cgroup_folders("cpu", root, membership)) == [root / "cpu"]
    assert machine.cgroup_cores(root / "cpu") is None
    write(root / "cpu", cpu__cfs_quota_us="200000")
    assert machine.cgroup_cores(root / "cpu") == 2
    assert list(machine.cgroup_folders("memory", root, membership)) == [root / "memory" / "job", root / "memory"]
    assert machine.cgroup_memory(root / "memory" / "job") == 2097152


@pytest.mark.parametrize(("quotas", "cores"), [((None, 2.5), 3), ((0.2, 4.0), 1), ((None, None), 8), ((64.0,), 8)])
def test_a_quota_lowers_the_usable_cores_and_the_threads_of_the_engine(monkeypatch, quotas, cores):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(machine, "cgroup_folders", lambda controller: range(len(quotas)))
    monkeypatch.setattr(machine, "cgroup_cores", quotas.__getitem__)
    machine.cores_of_quota.cache_clear()
    try:
        assert machine.usable_cores() == NumpyEngine().threads == threads_to_use() == cores
    finally:
        machine.cores_of_quota.cache_clear()

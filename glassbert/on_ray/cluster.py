"""Connecting to a Ray cluster, or starting one on this machine.

--address       host:6379 or ray://host:10001: that cluster; auto: the one that runs on this machine
no address      that of RAY_ADDRESS, or else a cluster of this process alone, which ends with it
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from glassbert.engines.machine import usable_cores
from glassbert.errors import InputError, needs

TIMEOUT = 20  # seconds that a cluster has to answer
STORE = 256 * 2**20  # bytes of shared memory of a cluster of our own; pieces are small
PORT, CLIENT_PORT = 6379, 10001
RETRIES = 3  # of work whose process died
REMEDY = "probably because memory ran out; finished parts are kept: run the same command again, with fewer --workers"


def ray_package() -> Any:
    """The package ray with its part for data, or an error that says how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that we start reports to nobody
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(needs("--on ray", "ray[data,serve]")) from error
    return ray


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    ray: Any
    workers: int
    threads: int  # of one worker, which reserves as many CPUs


@contextmanager
def connected(address: str | None = None, workers: int | None = None, threads: int | None = None) -> Iterator[Cluster]:
    """Context manager: a connection to a cluster with room for `workers` of `threads` CPUs each.

    By default a worker has one thread, and there are as many as the CPUs allow. A connection that the process has
    already is used and kept.
    """
    ray, threads = ray_package(), threads or 1
    ours = not ray.is_initialized()
    if ours:
        _connect(
            ray, address or os.environ.get("RAY_ADDRESS"), (workers or max(1, usable_cores() // threads)) * threads
        )
    try:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if cpus < (workers or 1) * threads:
            raise InputError(
                f"the Ray cluster has {cpus} CPUs, too few for {workers or 1} workers with {threads} threads each; "
                "set --workers or --threads lower"
            )
        yield Cluster(ray, workers or cpus // threads, threads)
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if address in (None, "local"):
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=STORE, **quiet)
        return
    if address != "auto":
        check_answers(str(address))
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"no Ray cluster answers at {address}: {reason}; start one with: ray start --head") from error


@contextmanager
def explain_lost_workers(ray: Any) -> Iterator[None]:
    """Context manager: turns the error of Ray about a worker that died too often into a sentence."""
    try:
        yield
    except ray.exceptions.RayTaskError:  # raised by our own code there
        raise
    except ray.exceptions.RayError as error:
        raise InputError(f"a worker of the cluster died too often ({type(error).__name__}), {REMEDY}") from error


def check_answers(address: str) -> None:
    """Raise unless a Ray cluster answers at the address within TIMEOUT seconds. Ray itself waits for minutes."""
    client = address.startswith("ray://")
    host, _, port = address.removeprefix("ray://").rstrip("/").rpartition(":")
    host, port = (host, port) if host else (port, str(CLIENT_PORT if client else PORT))
    if not port.isdigit():
        raise InputError(f"--address must be host:port, ray://host:port, auto or local; got {address!r}")
    remedy = "start one with: ray start --head, or leave out --address for a cluster on this machine"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT).close()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"no Ray cluster answers at {address} ({reason}); {remedy}") from error
    if client:
        return
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", f"{host}:{port}"]
    try:
        answers = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        answers = False
    if not answers:
        raise InputError(f"a server answers at {address}, but it is no Ray cluster of this version of Ray; {remedy}")

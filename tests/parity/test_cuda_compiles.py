"""NVIDIA's own compiler takes every CUDA kernel, without a GPU; g++, which the other tests use, takes more."""

import sys

import pytest

from benchmarks import gpu_registers

pytestmark = pytest.mark.parity


@pytest.mark.skipif(sys.platform != "linux", reason="NVRTC's wheels are for Linux")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_every_kernel_compiles_and_keeps_its_values_in_registers(architecture):
    compiler, found = gpu_registers.Compiler(architecture), gpu_registers.sources()
    assert len(found) > 40
    for name, source in found.items():
        fine, log = compiler.compile(source)
        assert fine, f"{name}:\n{log}"
        local, spilled = gpu_registers.LOCAL.search(log).groups()
        assert local == spilled == "0", f"{name} needs {local} bytes of local memory:\n{log}"


def test_an_error_is_reported():
    fine, log = gpu_registers.Compiler("sm_90").compile(
        'extern "C" __global__ void kernel(float* y) { y[0] = nothing; }'
    )
    assert not fine and "nothing" in log

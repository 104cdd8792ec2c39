"""The table of a GPU's kernels: what is put together, what adds up, and what is said without a GPU."""

import pytest

from benchmarks import gpu_profile
from benchmarks.gpu_profile import IDLE, REST, Kernel, busy, kind_of, summary, table_of

KERNELS = [  # of two steps; the second product begins before the first one ends
    Kernel("nvjet_tst_128x128_gemm", 0, 1_000_000),
    Kernel("nvjet_tst_128x128_gemm", 900_000, 1_500_000),
    Kernel("layer_norm_backward", 2_000_000, 2_300_000),
    Kernel("binary_vv_add", 2_300_000, 2_500_000),
]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x128_gemm", "products"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "attention"),
        ("void layer_norm_backward<float>", "layer norm"),
        ("glassbert_each_adamw", "many parameters at once"),
        ("glassbert_rotary", "activations, rotary positions, heads"),
        ("glassbert_gelu_backward", "activations, rotary positions, heads"),
        ("glassbert_cross_entropy_backward", "cross-entropy"),
        ("glassbert_layer_norm_with_beta", "layer norm"),
        ("glassbert_finish_sums", "bias gradients, ends of layer norms"),
        ("glassbert_table_rows", "embedding and chosen rows"),
        ("glassbert_add_rows", "embedding and chosen rows"),
        ("row_reduce_looped_sum", "sums"),
        ("copy_v_bfloat16", "copies"),
        ("binary_vv_add", REST),
    ],
)
def test_a_kernel_is_counted_by_its_name(name, kind):
    assert kind_of(name) == kind


def test_kernels_at_the_same_time_keep_the_gpu_busy_once():
    assert busy(KERNELS) == 1_500_000 + 500_000
    assert busy([]) == 0


def test_the_rows_of_a_profile_add_up():
    report = summary(KERNELS, steps=2)
    kinds = {row["name"]: row for row in report["kinds"]}
    assert kinds["products"]["ms"] == pytest.approx(0.8)
    assert kinds["products"]["launches"] == 1
    assert report["launches"] == 2
    assert sum(row["ms"] for row in report["kinds"]) + report["idle_ms"] - report["overlap_ms"] == pytest.approx(
        report["span_ms"]
    )
    assert report["kernels"][0]["name"] == "nvjet_tst_128x128_gemm"


def test_the_table_names_what_waits_and_what_the_arithmetic_needs():
    facts = {
        "model": "mini-64", "batch": 8, "length": 64, "seconds": 2e-3, "host_seconds": 1.5e-3, "tflop": 0.5,
        "matmul_tflops": 500.0, "steps": 2,
    }  # fmt: skip
    text = table_of({**summary(KERNELS, steps=2), **facts}, most=1, machine="a machine").plain()
    assert IDLE in text and "at the same time" in text and "1.50" in text
    assert "takes 1.00 ms at the rate of a large product (500 TFLOP/s): 50.0% of that rate" in text
    assert "nvjet_tst_128x128_gemm" in text


def test_without_a_gpu_it_says_what_is_needed(monkeypatch, capsys):
    monkeypatch.setattr(gpu_profile, "require", lambda *names: None)
    monkeypatch.setattr(gpu_profile, "on_cuda", lambda: False)
    with pytest.raises(SystemExit) as error:
        gpu_profile.main([])
    assert error.value.code == 1
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


def test_an_unknown_workload_is_refused(capsys):
    with pytest.raises(SystemExit):
        gpu_profile.main(["--only", "mini-65"])
    assert "mini-65" in capsys.readouterr().err

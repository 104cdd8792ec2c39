"""`glassbert quickstart`, run as a newcomer would run it."""

import pytest

from glassbert.cli import main
from glassbert.cli.quickstart import sparkline


def test_it_shows_the_loss_and_fills_the_mask(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "--steps", "10", "--engine", "numpy"])
    assert ended.value.code in (0, None)
    shown = capsys.readouterr().out
    assert "4,501,184 parameters" in shown
    assert "10 of 10" in shown
    assert shown.rstrip().splitlines()[-1].startswith("Paris is the ")


def test_a_sentence_without_a_mask_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "--sentence", "Paris is the capital of France."])
    assert ended.value.code == 2
    assert "[MASK] exactly once" in capsys.readouterr().err


def test_sparklines():
    assert sparkline([3.0, 2.0, 1.0, 0.0], 4) == "█▆▃▁"
    assert len(sparkline([float(i) for i in range(100)], 20)) == 20
    assert sparkline([1.0], 10) == "▁"

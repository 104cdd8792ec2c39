"""`glassbert serve`: what is refused before it listens, and the defaults of its options."""

import pytest

from glassbert.cli import main
from glassbert.serving.listening import listen


@pytest.fixture
def refused(capsys):
    def refused(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["serve", *arguments])
        assert end.value.code == 2
        return capsys.readouterr().err

    return refused


def test_wrong_options_are_named_before_a_model_is_opened(refused, tmp_path):
    assert "--wait" in refused("--wait", "-1") and "--timeout" in refused("--timeout", "0")
    assert "--grace" in refused("--grace", "nan")
    assert "no file" in refused("--api-keys", str(tmp_path / "missing"))
    assert "cannot be used" in refused("--host", "192.0.2.1")
    with listen(0) as taken:
        assert "another program" in refused("--port", str(taken.getsockname()[1]))


def test_a_model_that_cannot_be_served_ends_the_command(refused, tmp_path):
    assert "nothing" in refused(str(tmp_path / "nothing"), "--port", "0")


def test_help_teaches_with_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    assert "glassbert serve runs/stars" in shown and "--api-keys" in shown


def test_the_command_serves_with_the_settings_of_its_options(monkeypatch, tmp_path, capsys):
    from glassbert.cli import serve
    from tests.serving.running import save_language_model

    found = []
    monkeypatch.setattr(serve, "serve", lambda app, listening, grace: found.append((app, grace)))
    folder = save_language_model(tmp_path / "words")
    options = [
        "--wait",
        "5",
        "--queue",
        "2k",
        "--max-texts",
        "7",
        "--allow-origin",
        "*",
        "--threads",
        "3",
        "--grace",
        "2",
    ]
    with pytest.raises(SystemExit) as end:
        main(["serve", f"w={folder}", "--port", "0", "--engine", "numpy", *options])
    assert end.value.code == 0 and "Serving w on http://127.0.0.1:" in capsys.readouterr().out
    (app, grace), settings = found[0], found[0][0].settings
    assert (settings.wait, settings.queue, settings.limits.texts, settings.threads) == (0.005, 2000, 7, 3)
    assert settings.origins == ("*",) and grace == 2 and list(app.shelf.models) == ["w"]

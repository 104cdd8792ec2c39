"""The steps of the Dockerfile without Docker: installed in a bare virtual environment, run without rights.

    python tests/release/image.py [--python /usr/bin/python3]

Installation, environment, user, command, health check and signal are read from the Dockerfile. As root on Linux, the
server runs as the user of the image, without capabilities, on a read-only root file system with a /tmp in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A file system of its own, where everything but the given folder is read-only; then the user, without any rights.
CONFINED = (
    'mount -t tmpfs tmpfs "$0" && chown "$1:$2" "$0" && mount -o remount,bind,ro / && user=$1 group=$2 && shift 2 && '
    'exec setpriv --reuid "$user" --regid "$group" --clear-groups --no-new-privs --bounding-set=-all "$@"'
)


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, name and value."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if re.match(r"[A-Z]+ ", line)]


def value_of(name: str) -> str:
    return next(value for one, value in reversed(instructions()) if one == name)


def install(venv: Path, python: str) -> None:
    """The RUN steps, with this folder in the place of the image's."""
    for name, step in instructions():
        if name == "RUN":
            step = step.replace("/opt/glassbert", str(venv)).replace("python -m venv", f"{python} -m venv")
            subprocess.run(step, shell=True, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def confined(home: Path) -> list[str]:
    """What to put before a command; nothing for a user who has no rights to give up."""
    if os.getuid() or not all(map(shutil.which, ("unshare", "setpriv"))):
        return []
    return ["unshare", "-m", "sh", "-c", CONFINED, str(home), *value_of("USER").split(":")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that every user may run")
    parser.add_argument("--port", type=int, default=18_000)
    options = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="glassbert-image-"))
    top.chmod(0o755)
    venv, home = top / "venv", top / "home"
    home.mkdir()
    server = None
    try:
        install(venv, options.python)
        pairs = [value.split("=", 1) for name, value in instructions() if name == "ENV"]
        places = {"/opt/glassbert": str(venv), "/tmp": str(home)}
        variables = {name: re.sub("|".join(places), lambda found: places[found[0]], value) for name, value in pairs}
        command = [*json.loads(value_of("ENTRYPOINT")), *json.loads(value_of("CMD")), "--port", str(options.port)]
        check = json.loads(value_of("HEALTHCHECK").partition("CMD ")[2])
        check[-1] = check[-1].replace(":8000", f":{options.port}")
        command[0], check[0] = str(venv / "bin" / command[0]), str(venv / "bin" / check[0])
        before = confined(home)
        server = subprocess.Popen([*before, *command], env={**variables, "PATH": os.environ["PATH"]}, cwd="/")
        healthy = False
        for _ in range(180):
            time.sleep(0.5)
            healthy = subprocess.run(check, env=variables, stderr=subprocess.DEVNULL).returncode == 0
            if healthy or server.poll() is not None:
                break
        assert healthy, "the health check of the image does not pass"
        body = json.dumps({"input": "She opened the [MASK] and went out.", "top": 1}).encode()
        address = f"http://127.0.0.1:{options.port}/v1/fill-mask"
        asked = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        found = json.load(urllib.request.urlopen(asked))["data"][0]["masks"][0][0]["word"]
        assert found == "door", found
        if before:
            status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
            assert f"Uid:\t{before[-2]}\t" in status and "CapEff:\t0000000000000000" in status
        server.send_signal(getattr(signal, value_of("STOPSIGNAL")))
        assert server.wait(60) == 0, "the signal does not end the server with 0"
        size = sum(path.stat().st_size for path in venv.rglob("*") if path.is_file()) / 2**20
        how = "as the user of the image, on a read-only file system" if before else "as this user"
        print(f"the steps of the Dockerfile pass: {size:,.0f} MiB installed; it runs {how}")
    finally:
        if server is not None and server.poll() is None:
            server.kill()
            server.wait()
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()

#!/bin/sh
# Print the browser that the tests use. If there is none, install Debian's chromium, or say how to.
set -eu
for name in ${CHROMIUM:-} chromium chromium-browser google-chrome "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
    if command -v "$name" >/dev/null 2>&1; then
        echo "browser: $(command -v "$name")"
        exit 0
    fi
done
if command -v apt-get >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        as_root=""
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        as_root="no"
    fi
    if [ "$as_root" != "no" ]; then
        echo "installing chromium with apt-get"
        $as_root apt-get update -qq
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
        echo "browser: $(command -v chromium)"
        exit 0
    fi
fi
echo "The browser tests need Chromium or Chrome, and this account cannot install it." >&2
echo "Install it (Debian: sudo apt-get install chromium), or set CHROMIUM to the path of the browser." >&2
exit 1

# glassbert serve in a slim image: no compiler, not root, and nothing is written outside /tmp.
#
#   docker build -t glassbert-serve .
#   docker run --rm -p 8000:8000 --read-only --tmpfs /tmp --cap-drop ALL -v "$PWD/runs:/models:ro" glassbert-serve /models/stars
#
# tests/release/image.py runs the same steps in a bare virtual environment.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY glassbert glassbert
RUN python -m venv /opt/glassbert
RUN /opt/glassbert/bin/python -m pip install --no-cache-dir --disable-pip-version-check ".[serve]"

FROM python:3.12-slim
COPY --from=build /opt/glassbert /opt/glassbert
ENV PATH=/opt/glassbert/bin:/usr/local/bin:/usr/bin:/bin
ENV HOME=/tmp
ENV NUMBA_CACHE_DIR=/tmp/numba
ENV MPLCONFIGDIR=/tmp/matplotlib
ENV PYTHONDONTWRITEBYTECODE=1
ENV PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["glassbert", "serve", "--host", "0.0.0.0"]
CMD ["mini"]

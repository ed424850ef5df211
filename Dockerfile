# CPU image. Two stages: the first has a compiler and pip, the second has neither.
FROM python:3.11-slim-bookworm AS build
ARG TORCH=2.13.0
# Further pip arguments for torch alone, such as an index of CPU builds.
ARG TORCH_ARGS=""
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/agentspec \
 && /opt/agentspec/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock \
 && /opt/agentspec/bin/pip install --no-cache-dir --no-deps ${TORCH_ARGS} "torch==${TORCH}"
COPY pyproject.toml README.md LICENSE ./
COPY agentspec agentspec
COPY kernels kernels
COPY grammars grammars
COPY migrations migrations
RUN /opt/agentspec/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/agentspec/bin/pip check \
 && XDG_CACHE_HOME=/opt/cache /opt/agentspec/bin/agentspec model get
# The CPU kernels for every instruction set; the engine looks for them in the user's cache.
RUN /opt/agentspec/bin/python -c "from pathlib import Path; from agentspec_kernels._cpu import build as b; \
[b.build(Path('/opt/cache/agentspec/kernels'), isa) for isa in b.ISA_FLAGS]"

FROM python:3.11-slim-bookworm
RUN useradd --system --create-home --home-dir /data --uid 10001 agentspec
COPY --from=build /opt/agentspec /opt/agentspec
COPY --from=build --chown=agentspec /opt/cache /data/.cache
COPY --chown=agentspec docker.toml /etc/agentspec.toml
ENV PATH=/opt/agentspec/bin:$PATH XDG_CACHE_HOME=/data/.cache PYTHONUNBUFFERED=1
USER agentspec
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/ready')"]
# Listens on 0.0.0.0, hence refuses to start without AGENTSPEC_API_KEY (docs/operations.md).
CMD ["agentspec", "serve", "--config", "/etc/agentspec.toml", "--data-dir", "/data"]

# dpflbench in a container. CPU by default; CUDA: docker build --build-arg VARIANT=cuda .
# Both have the torch of constraints.txt. The usual build brings CUDA's libraries along, gigabytes of them; torch's own index has a smaller one for
# the CPU: docker build --build-arg TORCH_INDEX=<address of torch's CPU index> .
ARG VARIANT=cpu

FROM python:3.11-slim AS cpu
ARG TORCH_INDEX=
ENV PIP_EXTRA_INDEX_URL=${TORCH_INDEX}

FROM nvidia/cuda:13.0.1-base-ubuntu24.04 AS cuda
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/python
ENV PATH=/opt/python/bin:$PATH

FROM ${VARIANT}
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
# torch and torchvision first: a layer of gigabytes that only a new version makes again
COPY constraints.txt /src/
RUN python -m pip install -c /src/constraints.txt torch torchvision
COPY pyproject.toml README.md LICENSE /src/
COPY dpflbench /src/dpflbench
COPY plugins /src/plugins
COPY suites /src/suites
RUN python -m pip install -c /src/constraints.txt /src && rm -rf /src
# nobody's rights are needed, and results belong to whoever mounts a folder: docker run --user "$(id -u):$(id -g)"
RUN useradd --create-home --uid 10001 bench && mkdir -p /bench/results && chown -R 10001 /bench
ENV DPFLBENCH_CACHE=/tmp/dpflbench
USER 10001
WORKDIR /bench
ENTRYPOINT ["dpflbench"]
CMD ["--help"]

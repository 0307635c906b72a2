# eyechart in a container.
#   CPU:   docker build -t eyechart .
#   CUDA:  docker build -t eyechart:cuda --build-arg BASE=pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime .
#          docker run --rm --gpus all -v "$PWD:/work" eyechart:cuda exam --device cuda
# pip's own torch for Linux carries CUDA libraries (6 GB); TORCH_INDEX names an index of smaller ones for the CPU.
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BREAK_SYSTEM_PACKAGES=1 PYTHONUNBUFFERED=1

COPY pyproject.toml setup.py README.md LICENSE /src/
COPY src /src/src
# torch first, where an index is given; where the base has one that is new enough, it stays.
RUN if [ -n "${TORCH_INDEX}" ]; then pip install --index-url "${TORCH_INDEX}" torch torchvision; fi \
 && pip install "/src[hf]" \
 && rm -rf /src

# The folder is the examiner's, so that runs/ can be written where nothing is mounted; where something is, add
# --user "$(id -u):$(id -g)" to `docker run`.
RUN useradd --create-home examiner && install --directory --owner=examiner /work
USER examiner
WORKDIR /work
ENTRYPOINT ["eyechart"]
CMD ["--help"]

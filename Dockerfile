# Image of stoker's servers: docker build -t stoker .
# The first stage builds the wheel, the second installs it: nothing but the base image and the package
# index is downloaded, and the image has neither the source nor a compiler.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
COPY pyproject.toml README.md LICENSE /stoker/
COPY src /stoker/src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /stoker

FROM ${PYTHON_IMAGE}
COPY --from=build /wheels /wheels
# Workers also need the modules that your functions import, and NumPy in the trainer's version: build an
# image FROM this one that installs them.
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
RUN useradd --uid 1000 stoker && install -d -o stoker /journal
USER stoker
ENTRYPOINT ["stoker"]
CMD ["--help"]

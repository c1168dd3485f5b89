# The book's environment, from requirements.lock, as `make` sets it up anywhere: with PyTorch's build for CPUs.
#   docker build -t carry . && docker run --rm -it -p 8000:8000 carry
#   docker build -t carry --build-arg UV_TORCH_BACKEND=cu130 .      for a GPU
# JupyterLab opens copies of the notebooks; append `bash` for a shell.
FROM python:3.11-bookworm
RUN useradd --create-home reader
USER reader
WORKDIR /home/reader/carry
COPY --chown=reader . .
ARG TORCH=torch==2.13.0
ARG UV_TORCH_BACKEND=cpu
RUN make setup TORCH="$TORCH" UV_TORCH_BACKEND="$UV_TORCH_BACKEND"
RUN .venv/bin/python -m pip install --quiet --constraint requirements.lock jupyterlab
# `make setup` leaves compiling to the first import: without this line, each new container would do it again.
RUN .venv/bin/python -m compileall -q -j 0 .venv/lib || true
RUN .venv/bin/python workflow/lab.py _build/lab
EXPOSE 8000
CMD [".venv/bin/jupyter-lab", "--ip=0.0.0.0", "--port=8000", "--no-browser", "_build/lab"]

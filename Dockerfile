# The book's environment, from requirements.lock, as `make` sets it up anywhere.
#   docker build -t carry . && docker run --rm -it -p 8000:8000 carry
# JupyterLab opens copies of the notebooks; append `bash` for a shell.
FROM python:3.11-bookworm
RUN useradd --create-home reader
USER reader
WORKDIR /home/reader/carry
COPY --chown=reader . .
ARG TORCH=torch==2.13.0
RUN make setup TORCH="$TORCH"
RUN .venv/bin/python -m pip install --quiet --constraint requirements.lock jupyterlab
# `make setup` leaves compiling to the first import: without this line, each new container would do it again.
RUN .venv/bin/python -m compileall -q -j 0 .venv/lib || true
EXPOSE 8000
CMD [".venv/bin/jupyter-lab", "--ip=0.0.0.0", "--port=8000", "--no-browser", "notebooks"]

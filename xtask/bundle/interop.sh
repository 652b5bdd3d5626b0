#!/bin/sh
# Nests guards with those of PyTorch and CuPy, on two of this machine's GPUs; --help says more.
exec "${PYTHON:-python3}" "$(dirname "$0")/interop.py" "$@"

#!/bin/sh
# Measures each operation on this machine's GPUs, beside the raw driver, CuPy, PyTorch, cuda.core and cudarc:
# ./bench.sh --json results.json --svg results.svg; --help says more.
exec "$(dirname "$0")/xtask" bench "$@"

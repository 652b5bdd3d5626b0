#!/bin/sh
# Runs the test matrix and the examples on this machine's GPUs; ./ranks.sh trains by several processes, ./bench.sh
# measures, ./xtask has the demo.
cd "$(dirname "$0")" && exec ./xtask test-gpu --bundle . "$@"

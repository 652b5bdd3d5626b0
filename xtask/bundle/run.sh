#!/bin/sh
# Runs the test matrix on this machine's GPUs; ./bench.sh measures, ./xtask has the demo.
cd "$(dirname "$0")" && exec ./xtask test-gpu --bundle . "$@"

"""Unpacks cuda.h or nccl.h, and NVIDIA's licence from the wheel in a directory, and removes the wheel."""

import glob
import os
import sys
import zipfile

[path] = glob.glob(os.path.join(glob.escape(sys.argv[1]), "*.whl"))
with zipfile.ZipFile(path) as wheel:
    names = [name for name in wheel.namelist() if name.endswith(("/cuda.h", "/nccl.h", "License.txt"))]
    wheel.extractall(sys.argv[1], names)
os.remove(path)

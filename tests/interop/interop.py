#!/usr/bin/env python3
"""Nests cuda-core's guard with PyTorch's and CuPy's in one process, in every order.

One case is an order of scopes, a device for each, what is current before them, and whether the
innermost raises. In each scope all libraries must agree on the device, memory allocated there must
lie on it, and work of one library must change nothing for the others. Each scope's end must restore
the device that was current before; that of cuda-core must restore exactly the context.

Then tensors go from cuda-core to the others and back by DLPack, without copies: each side frees the
other's memory, on any thread, once its last owner is gone and what it enqueued is done. They have each
type of elements that both sides know, and strides, in the newer struct of DLPack and in the older one, or
are read-only; what cuda-core cannot take, it refuses. And the others work on memory of cuda-core by
`__cuda_array_interface__`, on a stream of cuda-core. Last, a tool that `NVTX_INJECTION64_PATH` names sees
ranges of cuda-core.

Needs PyTorch, CuPy and two GPUs. Exit code: 0 passed, 1 failed, 2 not run.
"""

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import struct
import subprocess
import sys
import threading

DEVICES = (0, 1)
LENGTH = 8
DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


class NotRun(Exception):
    """Something that the cases need is missing."""


class Raised(Exception):
    """The exception that the innermost scope raises."""


def require(condition, message):
    if not condition:
        raise AssertionError(message)


class CoreError(AssertionError):
    """An error of cuda-core."""


def refused(says, call):
    """Requires that cuda-core refuses something, with an error that says this."""
    try:
        call()
    except CoreError as error:
        require(says in str(error), f"refused, but not because {says!r}: {error}")
    else:
        require(False, f"taken, although {says!r}")


def load(path):
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise NotRun(error) from None


class Driver:
    """The driver itself, called directly: all libraries must agree with it."""

    def __init__(self):
        self.library = load(os.environ.get("CUDA_SYS_LIBRARY") or "libcuda.so.1")
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value < len(DEVICES):
            raise NotRun(f"{len(DEVICES)} GPUs needed, the driver shows {count.value}")

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        require(code == 0, f"{name}: error {code}")

    def current(self):
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value

    def set(self, context):
        self.call("cuCtxSetCurrent", ctypes.c_void_p(context))

    def push(self, context):
        self.call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))

    def pop(self):
        context = ctypes.c_void_p()
        self.call("cuCtxPopCurrent_v2", ctypes.byref(context))
        return context.value

    def drain(self):
        """Empties the thread's stack and returns its entries, the top first."""
        entries = []
        while self.current() is not None:
            entries.append(self.pop())
        return entries

    def retain(self, ordinal):
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context.value

    def release(self, ordinal):
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRelease_v2", device)

    def device_of(self, address):
        ordinal = ctypes.c_int(-1)
        self.call(
            "cuPointerGetAttribute", ctypes.byref(ordinal), DEVICE_ORDINAL, ctypes.c_uint64(address)
        )
        return ordinal.value


class CudaCore:
    """cuda-core, through libcuda_interop."""

    name = "cuda_core"

    def __init__(self, path):
        self.library = load(path)
        self.library.interop_last_error.restype = ctypes.c_char_p
        self.library.interop_drop_failures.restype = ctypes.c_uint64

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            text = self.library.interop_last_error().decode()
            raise CoreError(f"{name}: error {code}: {text}")

    @contextlib.contextmanager
    def scope(self, device):
        guard = ctypes.c_void_p()
        self.call("interop_enter", device, ctypes.byref(guard))
        try:
            yield
        finally:
            self.call("interop_leave", guard)

    def device(self):
        return None  # has no notion of a current device of its own

    def current(self):
        context = ctypes.c_void_p()
        self.call("interop_current", ctypes.byref(context))
        return context.value

    def work_here(self, value):
        return self.work("interop_work_here", value)

    def work_on(self, device, value):
        return self.work("interop_work_on", value, device)

    def work(self, name, value, *device):
        numbers, landed = (ctypes.c_uint32 * LENGTH)(), ctypes.c_int(-1)
        length = ctypes.c_size_t(LENGTH)
        self.call(name, *device, ctypes.c_uint32(value), numbers, length, ctypes.byref(landed))
        return landed.value, list(numbers)

    def stream(self, device):
        return CoreStream(self, device)

    def used(self, device):
        """Bytes of cuda-core's pool that are in use."""
        used = ctypes.c_size_t()
        self.call("interop_used", device, ctypes.byref(used))
        return used.value

    def drop_failures(self):
        return self.library.interop_drop_failures()

    def version(self):
        return None


class CoreStream:
    """A stream of cuda-core, and tensors that it works on."""

    def __init__(self, core, device):
        self.core, self.device = core, device
        self.stream, version, handle = ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_size_t()
        places = map(ctypes.byref, (self.stream, version, handle))
        core.call("interop_stream", device, *places)
        self.version, self.handle = version.value, handle.value

    def __cuda_stream__(self):
        return self.version, self.handle

    def export(self, value, shape, read_only=False):
        return Exported(self, value, shape, read_only)

    def export_numbers(self, kind, numbers, shape, strides=()):
        return ExportedNumbers(self, kind, numbers, shape, strides)

    def exchange(self, capsule, kind, left):
        """Takes a tensor over for a moment, and puts the numbers `left` in it; returns what was in it, its
        address and its length."""
        versioned, tensor = open_capsule(capsule)
        left = to_bytes(kind, left)
        found, address, length = bytes(len(left)), ctypes.c_uint64(), ctypes.c_size_t()
        found = ctypes.create_string_buffer(found, len(left))
        # It is cuda-core's from now on, also if it is refused.
        PYTHON.PyCapsule_SetName(id(capsule), NAMES[versioned][1])
        self.core.call(
            "interop_exchange",
            self.stream,
            tensor,
            ctypes.c_bool(versioned),
            *code_of(kind),
            found,
            left,
            ctypes.c_size_t(len(left)),
            ctypes.byref(address),
            ctypes.byref(length),
        )
        return from_bytes(kind, found.raw), address.value, length.value

    def array(self, kind, numbers, writable):
        return CoreArray(self, kind, numbers, writable)

    def take(self, producer, filled, value, **version):
        """Takes a tensor of another library over, and fills its elements from `filled` on."""
        return Taken(self, producer.__dlpack__(stream=self.handle, **version), filled, value)

    def overwrite(self, value, length):
        length = ctypes.c_size_t(length)
        self.core.call("interop_overwrite", self.stream, ctypes.c_float(value), length)

    def close(self):
        self.core.library.interop_stream_drop(self.stream)


# Code and bits of each type that tensors of cuda-core can have, and how `struct` packs a number, or a part of one.
TYPES = {
    "int8": (0, 8, "b"),
    "int16": (0, 16, "h"),
    "int32": (0, 32, "i"),
    "int64": (0, 64, "q"),
    "uint8": (1, 8, "B"),
    "uint16": (1, 16, "H"),
    "uint32": (1, 32, "I"),
    "uint64": (1, 64, "Q"),
    "float16": (2, 16, "e"),
    "bfloat16": (4, 16, "f"),  # The upper half of a float.
    "float32": (2, 32, "f"),
    "float64": (2, 64, "d"),
    "complex64": (5, 64, "f"),
    "complex128": (5, 128, "d"),
}


def code_of(kind):
    return tuple(map(ctypes.c_uint8, TYPES[kind][:2]))


def numbers_of(kind, count, first=0):
    """Small integers, which all types have; complex ones with an imaginary part."""
    numbers = range(first, first + count)
    return [complex(number, 1) if kind.startswith("complex") else number for number in numbers]


def to_bytes(kind, numbers):
    if kind.startswith("complex"):
        numbers = [part for number in numbers for part in (number.real, number.imag)]
    packed = [struct.pack("<" + TYPES[kind][2], number) for number in numbers]
    return b"".join(part[2:] if kind == "bfloat16" else part for part in packed)


def from_bytes(kind, data):
    code, bits, form = TYPES[kind]
    size = bits // 16 if kind.startswith("complex") else bits // 8
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    if kind == "bfloat16":
        parts = [bytes(2) + part for part in parts]
    numbers = [struct.unpack("<" + form, part)[0] for part in parts]
    if kind.startswith("complex"):
        return [complex(*pair) for pair in zip(numbers[::2], numbers[1::2])]
    return numbers


def gathered(numbers, shape, strides):
    """The numbers that an array with these strides has, row by row."""
    places = itertools.product(*map(range, shape))
    return [numbers[sum(map(lambda at, step: at * step, place, strides))] for place in places]


# Names of capsules before and after a consumer has taken the tensor; kept, as capsules refer to them.
NAMES = {True: (b"dltensor_versioned", b"used_dltensor_versioned"), False: (b"dltensor", b"used_dltensor")}
DELETER_OFFSETS = {True: 16, False: 56}  # in the managed tensor, versioned or not
FLAGS_OFFSET = 24  # in the versioned one
READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

PYTHON = ctypes.pythonapi
PYTHON.PyCapsule_New.restype = ctypes.py_object
PYTHON.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
PYTHON.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
PYTHON.PyCapsule_GetPointer.restype = ctypes.c_void_p
PYTHON.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
PYTHON.PyCapsule_SetName.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


def delete(tensor, versioned):
    """Calls the deleter of a managed tensor."""
    at = ctypes.c_void_p.from_address(tensor + DELETER_OFFSETS[versioned])
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at.value)(tensor)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def drop_capsule(capsule):
    """The destructor of capsules that no consumer has taken the tensor of."""
    for versioned, (name, _) in NAMES.items():
        if PYTHON.PyCapsule_IsValid(capsule, name):
            delete(PYTHON.PyCapsule_GetPointer(capsule, name), versioned)


def open_capsule(capsule):
    """Whether its tensor is versioned, and the tensor."""
    versioned = bool(PYTHON.PyCapsule_IsValid(id(capsule), NAMES[True][0]))
    return versioned, ctypes.c_void_p(PYTHON.PyCapsule_GetPointer(id(capsule), NAMES[versioned][0]))


class Exported:
    """What cuda-core gives to `from_dlpack`: each capsule has a new tensor."""

    def __init__(self, stream, value, shape, read_only=False):
        self.stream, self.value, self.shape, self.read_only = stream, value, shape, read_only
        self.address, self.versioned, self.flags = None, None, None

    def __dlpack_device__(self):
        return 2, self.stream.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.versioned = max_version is not None and max_version[0] >= 1
        tensor, address = ctypes.c_void_p(), ctypes.c_uint64()
        name, arguments = self.made_by()
        self.stream.core.call(
            name,
            self.stream.stream,
            *arguments,
            ctypes.c_int64(1 if stream is None else stream),
            ctypes.c_bool(self.versioned),
            ctypes.byref(tensor),
            ctypes.byref(address),
        )
        self.address = address.value
        if self.versioned:
            self.flags = ctypes.c_uint64.from_address(tensor.value + FLAGS_OFFSET).value
        destructor = ctypes.cast(drop_capsule, ctypes.c_void_p)
        return PYTHON.PyCapsule_New(tensor, NAMES[self.versioned][0], destructor)


    def made_by(self):
        extents = map(ctypes.c_size_t, self.shape)
        return "interop_export", (ctypes.c_float(self.value), *extents, ctypes.c_bool(self.read_only))


class Unversioned:
    """The same, by a producer that knows only the older struct."""

    def __init__(self, exported):
        self.exported = exported

    def __dlpack_device__(self):
        return self.exported.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **_):
        return self.exported.__dlpack__(stream=stream)


class ExportedNumbers(Exported):
    """The same with numbers of any type, and with strides."""

    def __init__(self, stream, kind, numbers, shape, strides):
        super().__init__(stream, None, shape)
        self.kind, self.numbers, self.strides = kind, numbers, strides

    def made_by(self):
        data = to_bytes(self.kind, self.numbers)
        extents = (*self.shape, *self.strides)
        extents = (ctypes.c_size_t * len(extents))(*extents)
        counts = ctypes.c_size_t(len(self.shape)), ctypes.c_bool(len(self.strides) > 0)
        size = ctypes.c_size_t(len(data))
        return "interop_export_numbers", (*code_of(self.kind), data, size, extents, *counts)


class CoreArray:
    """Memory of cuda-core, for `__cuda_array_interface__`."""

    class Entries(ctypes.Structure):
        _fields_ = [
            ("length", ctypes.c_size_t),
            ("address", ctypes.c_uint64),
            ("stream", ctypes.c_size_t),
            ("version", ctypes.c_uint32),
            ("read_only", ctypes.c_bool),
            ("typestr", ctypes.c_char * 8),
        ]

    def __init__(self, stream, kind, numbers, writable):
        self.stream, self.kind, self.entries = stream, kind, self.Entries()
        self.data = to_bytes(kind, numbers)
        self.array = ctypes.c_void_p()
        stream.core.call(
            "interop_array",
            stream.stream,
            *code_of(kind),
            self.data,
            ctypes.c_size_t(len(self.data)),
            ctypes.c_bool(writable),
            ctypes.byref(self.array),
            ctypes.byref(self.entries),
        )
        self.address = self.entries.address

    @property
    def __cuda_array_interface__(self):
        entries = self.entries
        return {
            "shape": (entries.length,),
            "typestr": entries.typestr.decode(),
            "data": (entries.address, bool(entries.read_only)),
            "version": entries.version,
            "stream": entries.stream,
        }

    def read(self):
        found = ctypes.create_string_buffer(len(self.data))
        self.stream.core.call("interop_array_read", self.stream.stream, self.array, found)
        return from_bytes(self.kind, found.raw)

    def close(self):
        self.stream.core.library.interop_array_drop(self.array)


class Taken:
    """A tensor of another library as a buffer of cuda-core."""

    def __init__(self, stream, capsule, filled, value):
        self.core = stream.core
        versioned, tensor = open_capsule(capsule)
        self.buffer, address, length = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
        self.core.call(
            "interop_import",
            stream.stream,
            tensor,
            ctypes.c_bool(versioned),
            ctypes.c_size_t(filled),
            ctypes.c_float(value),
            ctypes.byref(self.buffer),
            ctypes.byref(address),
            ctypes.byref(length),
        )
        PYTHON.PyCapsule_SetName(id(capsule), NAMES[versioned][1])
        self.address, self.length, self.versioned = address.value, length.value, versioned

    def drop_elsewhere(self):
        drop = self.core.library.interop_buffer_drop
        on_a_thread(lambda: drop(self.buffer))


def on_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Torch:
    name = "torch"

    def __init__(self, driver):
        try:
            import torch
        except ImportError as error:
            raise NotRun(f"no torch: {error}") from None
        if not torch.cuda.is_available():
            raise NotRun("torch has no CUDA")
        self.torch, self.driver = torch, driver

    def scope(self, device):
        return self.torch.cuda.device(device)

    def device(self):
        return self.torch.cuda.current_device()

    def work_here(self, value):
        return self.work("cuda", value)

    def work_on(self, device, value):
        return self.work(f"cuda:{device}", value)

    def work(self, device, value):
        tensor = self.torch.full((LENGTH,), value, dtype=self.torch.int32, device=device)
        landed = self.driver.device_of(tensor.data_ptr())
        require(tensor.device.index == landed, f"torch says {tensor.device}, the driver {landed}")
        return landed, tensor.tolist()

    # Of tensors.
    def take(self, producer):
        return self.torch.from_dlpack(producer)

    def take_unversioned(self, exported):
        # The protocol's name of the default stream is not its handle.
        stream = self.torch.cuda.current_stream().cuda_stream or 1
        return self.torch.utils.dlpack.from_dlpack(exported.__dlpack__(stream=stream))

    def make(self, value, shape, device):
        return self.torch.full(shape, value, dtype=self.torch.float32, device=f"cuda:{device}")

    # Those of cuda-core that it can calculate with.
    kinds = [kind for kind in TYPES if kind not in ("uint16", "uint32", "uint64")]

    def of(self, kind, numbers, device):
        dtype = getattr(self.torch, kind)
        return self.torch.tensor(numbers, dtype=dtype, device=f"cuda:{device}")

    def kind(self, tensor):
        return str(tensor.dtype).removeprefix("torch.")

    def strides(self, tensor):
        return tuple(tensor.stride())

    def take_array(self, array, device):
        return self.torch.as_tensor(array, device=f"cuda:{device}")

    takes_read_only = False

    def on(self, stream):
        """Makes a stream of cuda-core the current one."""
        _, handle = stream.__cuda_stream__()
        return self.torch.cuda.stream(self.torch.cuda.ExternalStream(handle, stream.device))

    def address(self, tensor):
        return tensor.data_ptr()

    def numbers(self, tensor):
        return tensor.flatten().tolist()

    @contextlib.contextmanager
    def side_stream(self):
        with self.torch.cuda.stream(self.torch.cuda.Stream()):
            yield

    def copy_late(self, tensor):
        """A copy that the current stream makes about 50 ms later."""
        copy = self.torch.empty_like(tensor)
        self.torch.cuda._sleep(100_000_000)
        copy.copy_(tensor)
        return copy

    def used(self):
        return self.torch.cuda.memory_allocated()

    def version(self):
        return self.torch.__version__


class Cupy:
    name = "cupy"

    def __init__(self, driver):
        try:
            import cupy
        except ImportError as error:
            raise NotRun(f"no cupy: {error}") from None
        self.cupy, self.driver = cupy, driver

    def scope(self, device):
        return self.cupy.cuda.Device(device)

    def device(self):
        return self.cupy.cuda.runtime.getDevice()

    def work_here(self, value):
        array = self.cupy.array([value] * LENGTH, dtype="int32")
        landed = self.driver.device_of(array.data.ptr)
        require(array.device.id == landed, f"cupy says {array.device}, the driver {landed}")
        return landed, array.get().tolist()

    def work_on(self, device, value):
        with self.scope(device):
            return self.work_here(value)

    # Of tensors.
    def take(self, producer):
        return self.cupy.from_dlpack(producer)

    def take_unversioned(self, exported):
        return self.cupy.from_dlpack(Unversioned(exported))

    def make(self, value, shape, device):
        with self.scope(device):
            return self.cupy.full(shape, value, dtype="float32")

    kinds = [kind for kind in TYPES if kind != "bfloat16"]

    def of(self, kind, numbers, device):
        with self.scope(device):
            return self.cupy.array(numbers, dtype=kind)

    def kind(self, array):
        return str(array.dtype)

    def strides(self, array):
        return tuple(stride // array.itemsize for stride in array.strides)

    def take_array(self, array, device):
        with self.scope(device):
            return self.cupy.asarray(array)

    takes_read_only = True

    def on(self, stream):
        """Makes a stream of cuda-core the current one."""
        if hasattr(self.cupy.cuda.Stream, "from_external"):  # Takes what has `__cuda_stream__`, from 14 on.
            return self.cupy.cuda.Stream.from_external(stream)
        return self.cupy.cuda.ExternalStream(stream.__cuda_stream__()[1], stream.device)

    def address(self, array):
        return array.data.ptr

    def numbers(self, array):
        return array.ravel().get().tolist()

    @contextlib.contextmanager
    def side_stream(self):
        # Kept until the tensors that it works on are gone.
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            yield
        stream.synchronize()

    def copy_late(self, array):
        """A copy behind other work of the current stream."""
        work = self.cupy.ones(1 << 26, dtype="float32")
        for _ in range(50):
            work *= 1.0
        return array.copy()

    def used(self):
        return self.cupy.get_default_memory_pool().used_bytes()

    def version(self):
        return self.cupy.__version__


class Raw:
    """Stands in for a framework: changes the current context by driver calls alone."""

    def __init__(self, name, driver):
        self.name, self.driver, self.primaries = name, driver, {}

    @contextlib.contextmanager
    def scope(self, device):
        if device not in self.primaries:
            self.primaries[device] = self.driver.retain(device)
        saved = self.driver.current()
        enter = self.driver.push if self.name == "push" else self.driver.set
        enter(self.primaries[device])
        try:
            yield
        finally:
            if self.name == "push":
                self.driver.pop()
            else:
                self.driver.set(saved)

    def close(self):
        for device in self.primaries:
            self.driver.release(device)

    def device(self):
        return None

    def work_here(self, value):
        address, numbers = ctypes.c_uint64(), (ctypes.c_uint32 * LENGTH)()
        size = ctypes.c_size_t(ctypes.sizeof(numbers))
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), size)
        length = ctypes.c_size_t(LENGTH)
        self.driver.call("cuMemsetD32_v2", address, ctypes.c_uint32(value), length)
        self.driver.call("cuMemcpyDtoH_v2", numbers, address, size)
        landed = self.driver.device_of(address.value)
        self.driver.call("cuMemFree_v2", address)
        return landed, list(numbers)

    def work_on(self, device, value):
        with self.scope(device):
            return self.work_here(value)

    def version(self):
        return None


# What a process prints that begins NVTX ranges in the library which its argument names.
RANGES = """
import ctypes, sys
ranges = ctypes.CDLL(sys.argv[1]).interop_nvtx
ranges.restype = ctypes.c_char_p
print(ranges().decode())
"""


def check_ranges(library, tool, expected):
    """Begins NVTX ranges in a process of its own, with a tool or without."""
    environment = {name: value for name, value in os.environ.items() if name != "NVTX_INJECTION64_PATH"}
    if tool:
        environment["NVTX_INJECTION64_PATH"] = tool
    # The other process has a driver of its own, if any, whose report is not this one's.
    environment.pop("CUDA_SIM_REPORT", None)
    ended = subprocess.run(
        [sys.executable, "-c", RANGES, library],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    require(ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr}")
    require(ended.stdout.split("\n")[:-1] == expected, f"the tool saw {ended.stdout!r}")


class Nest:
    """Runs the cases."""

    def __init__(self, driver, cuda_core, others):
        self.driver, self.cuda_core = driver, cuda_core
        self.members = {member.name: member for member in (cuda_core, *others)}
        self.value = 0
        self.primaries = {}

    def warm_up(self, first):
        """`first` is the library that touches a GPU first, while no primary context exists."""
        names = sorted(self.members, key=lambda name: name != first)
        for name in names:
            for device in reversed(DEVICES):
                with self.members[name].scope(device):
                    self.check_work(name, device, self.members[name].work_here)
        self.primaries = {device: self.driver.retain(device) for device in DEVICES}

    def close(self):
        self.driver.drain()
        for device in self.primaries:
            self.driver.release(device)

    def cases(self):
        names = list(self.members)
        for order in itertools.permutations(names):
            for devices in itertools.product(DEVICES, repeat=len(order)):
                bases = DEVICES
                # While no context is current, the runtimes of PyTorch and CuPy each use a device of
                # their own, and cudaGetDevice may return another one than the next call makes
                # current, with or without cuda-core: no framework can begin in that state.
                if self.members[order[0]].device() is None:
                    bases = (*DEVICES, None)
                for base, raises in itertools.product(bases, (False, True)):
                    yield base, list(zip(order, devices)), raises
        for order in sorted(set(itertools.permutations([*names, "cuda_core"]))):
            for devices in itertools.product(DEVICES, repeat=len(order)):
                for raises in (False, True):
                    yield 0, list(zip(order, devices)), raises

    def run(self, base, steps, raises):
        self.driver.drain()
        before = [] if base is None else [self.primaries[base]]
        for context in before:
            self.driver.push(context)
        try:
            self.enter(steps, raises)
        except Raised:
            require(raises, "an unexpected exception")
        else:
            require(not raises, "the exception was lost")
        after = self.driver.drain()
        require(after == before, f"the stack was {before} and is {after}")

    def enter(self, steps, raises):
        (name, device), rest = steps[0], steps[1:]
        before = self.state()
        try:
            with self.members[name].scope(device):
                self.check_inside(f"in {name}({device})", device)
                if rest:
                    self.enter(rest, raises)
                    self.check_inside(f"back in {name}({device})", device)
                elif raises:
                    raise Raised
        finally:
            # A failed assertion inside says more than a check of what it left behind.
            if not isinstance(sys.exc_info()[1], AssertionError):
                self.check_after(name, device, before)

    def state(self):
        devices = {name: member.device() for name, member in self.members.items()}
        return self.driver.current(), devices

    def check_inside(self, where, device):
        current, devices = self.state()
        require(current == self.primaries[device], f"{where}: current is {current}")
        for name, said in devices.items():
            require(said in (None, device), f"{where}: {name} is on device {said}")
        require(self.cuda_core.current() == current, f"{where}: cuda-core sees another driver")
        for name, member in self.members.items():
            self.unchanged(f"{where}: {name}, elsewhere", member, 1 - device)
        for name, member in self.members.items():
            self.check_work(f"{where}: {name}", device, member.work_here)
        require(self.driver.current() == current, f"{where}: work left another context")

    def unchanged(self, where, member, device):
        """Work on a device that need not be current must not change the current context."""
        before = self.state()
        self.check_work(where, device, lambda value: member.work_on(device, value))
        after = self.state()
        require(after == before, f"{where}: changed {before} to {after}")

    def check_work(self, where, device, work):
        self.value += 1
        landed, numbers = work(self.value)
        require(landed == device, f"{where}: landed on device {landed}, not {device}")
        require(numbers == [self.value] * LENGTH, f"{where}: read back {numbers}")

    def check_after(self, name, device, before):
        where, after = f"after {name}({device})", self.state()
        if name == "cuda_core":
            require(after[0] == before[0], f"{where}: {before[0]} was current, now {after[0]}")
        if before[0] is not None:
            # The restored context must be the device's primary one, as before.
            require(after == before, f"{where}: was {before}, is {after}")


SHAPE = (512, 1024)
COUNT = SHAPE[0] * SHAPE[1]


# Shapes and strides of 24 numbers: rows, columns, a permutation of three dimensions, parts that overlap.
LAYOUTS = [
    ((4, 6), (6, 1)),
    ((4, 6), (1, 4)),
    ((2, 3, 4), (1, 2, 6)),
    ((5, 5), (4, 1)),
]


class Tensors:
    """Tensors and arrays between cuda-core and another library, on one device."""

    def __init__(self, core, other, device):
        self.core, self.other, self.device = core, other, device
        self.stream = core.stream(device)

    def close(self):
        self.stream.close()

    def cases(self):
        yield "a capsule that nobody takes", self.unclaimed
        yield "round trip of cuda-core", self.loop
        yield "types and layouts of cuda-core", self.loop_of_types
        yield "read-only tensors of cuda-core", self.loop_of_read_only
        yield "arrays of cuda-core", self.arrays
        if not isinstance(self.other, Raw):
            name = self.other.name
            yield f"cuda_core to {name}", self.to_other
            yield f"cuda_core to {name}, used late", self.used_late
            yield f"{name} to cuda_core", self.from_other
            for kind in self.other.kinds:
                yield f"cuda_core to {name}, {kind}", lambda kind=kind: self.numbers_to_other(kind)
                yield f"{name} to cuda_core, {kind}", lambda kind=kind: self.numbers_from_other(kind)
            for shape, strides in LAYOUTS:
                text = f"cuda_core to {name}, {shape} by {strides}"
                yield text, lambda shape=shape, strides=strides: self.layout_to_other(shape, strides)
            yield f"{name} to cuda_core, parts", self.parts_from_other
            yield f"{name} to cuda_core, booleans", self.booleans_from_other
            yield f"{name} to cuda_core, what is refused", self.refused_of_other
            for kind in self.other.kinds:
                if kind != "bfloat16":  # Arrays have no name for it.
                    yield f"array to {name}, {kind}", lambda kind=kind: self.array_to_other(kind)
            yield f"read-only array to {name}", self.read_only_to_other
            yield f"read-only tensor to {name}", self.read_only_tensor_to_other

    def unclaimed(self):
        before = self.core.used(self.device)
        for version in (None, (1, 0)):
            capsule = self.stream.export(1.0, SHAPE).__dlpack__(max_version=version)
            require(self.core.used(self.device) > before, "the capsule keeps the memory")
            holder = [capsule]
            del capsule
            on_a_thread(holder.clear)
            require(self.core.used(self.device) == before, "freed with the capsule")

    def loop(self):
        before = self.core.used(self.device)
        for version in (None, (1, 0)):
            exported = self.stream.export(3.0, SHAPE)
            taken = self.stream.take(exported, COUNT, 0.0, max_version=version)
            require(taken.versioned == (version is not None), "the struct that was asked for")
            require((taken.address, taken.length) == (exported.address, COUNT), "it was copied")
            require(self.core.used(self.device) > before, "the buffer keeps the memory")
            taken.drop_elsewhere()
            require(self.core.used(self.device) == before, "freed with the buffer")

    def to_other(self):
        before = self.core.used(self.device)
        sides = contextlib.nullcontext, self.other.side_stream
        for side, asks in itertools.product(sides, (True, False)):
            with self.other.scope(self.device), side():
                exported = self.stream.export(3.0, SHAPE)
                take = self.other.take if asks else self.other.take_unversioned
                tensor = take(exported)
                require(asks or not exported.versioned, "the older struct")
                require(self.other.address(tensor) == exported.address, "it was copied")
                require(tuple(tensor.shape) == SHAPE, f"its shape is {tensor.shape}")
                require(set(self.other.numbers(tensor)) == {3.0}, "taken before it was filled")
                part = tensor[1:2]
                del tensor
                require(self.core.used(self.device) > before, "a view keeps the memory")
                holder = [part]
                del part
                on_a_thread(holder.clear)
                require(self.core.used(self.device) == before, "freed with the last view")

    def used_late(self):
        with self.other.scope(self.device), self.other.side_stream():
            warm = self.other.copy_late(self.other.make(1.0, SHAPE, self.device))
            self.other.numbers(warm)
            tensor = self.other.take(self.stream.export(5.0, SHAPE))
            copy = self.other.copy_late(tensor)
            del tensor  # before it was copied
            self.stream.overwrite(9.0, COUNT)
            require(set(self.other.numbers(copy)) == {5.0}, "freed under the other's work")

    def from_other(self):
        with self.other.scope(self.device), self.other.side_stream():
            before = self.other.used()
            for version in ({}, {"max_version": (1, 0)}):
                tensor = self.other.make(2.0, SHAPE, self.device)
                taken = self.stream.take(tensor, COUNT // 2, 7.0, **version)
                require(taken.versioned == bool(version), "the struct that was asked for")
                require(taken.address == self.other.address(tensor), "it was copied")
                numbers = self.other.numbers(tensor)
                require(numbers == [2.0] * (COUNT // 2) + [7.0] * (COUNT // 2), "not in place")
                del tensor, numbers
                require(self.other.used() > before, "the buffer keeps the memory")
                taken.drop_elsewhere()
                require(self.other.used() == before, "freed with the buffer")

    def loop_of_types(self):
        before = self.core.used(self.device)
        for kind in TYPES:
            for version in (None, (1, 0)):
                numbers, others = numbers_of(kind, 30), numbers_of(kind, 30, first=50)
                exported = self.stream.export_numbers(kind, numbers, (5, 6))
                capsule = exported.__dlpack__(stream=self.stream.handle, max_version=version)
                found = self.stream.exchange(capsule, kind, others)
                require(found == (numbers, exported.address, 30), f"{kind}: {found}")
        for shape, strides in LAYOUTS:
            exported = self.stream.export_numbers("int32", numbers_of("int32", 24), shape, strides)
            capsule = exported.__dlpack__(stream=self.stream.handle)
            take = lambda: self.stream.exchange(capsule, "int32", [0] * 24)  # noqa: E731
            if strides == (6, 1):
                take()
            else:
                refused("there are gaps between the elements", take)
        exported = self.stream.export_numbers("float64", [0.0] * 8, (8,))
        capsule = exported.__dlpack__(stream=self.stream.handle)
        says = "the elements are float64, not float32"
        refused(says, lambda: self.stream.exchange(capsule, "float32", [0.0] * 8))
        says = "leaves the 8 elements"
        refused(says, self.stream.export_numbers("int8", [0] * 8, (2, 4), (5, 1)).__dlpack__)
        require(self.core.used(self.device) == before, "all is freed, also what was refused")

    def loop_of_read_only(self):
        before = self.core.used(self.device)
        exported = self.stream.export(3.0, (5, 6), read_only=True)
        refused("only the versioned struct can say", exported.__dlpack__)
        capsule = exported.__dlpack__(stream=self.stream.handle, max_version=(1, 0))
        require(exported.flags == READ_ONLY, f"its flags are {exported.flags}")
        take = lambda: self.stream.exchange(capsule, "float32", [0.0] * 30)  # noqa: E731
        refused("the tensor is read-only", take)
        require(self.core.used(self.device) == before, "freed, although refused")

    def arrays(self):
        for kind in TYPES:
            numbers = numbers_of(kind, 12)
            for writable in (False, True):
                if kind == "bfloat16":
                    refused("bf16", lambda: self.stream.array(kind, numbers, writable))
                    continue
                array = self.stream.array(kind, numbers, writable)
                code, bits, _ = TYPES[kind]
                letter = {0: "i", 1: "u", 2: "f", 5: "c"}[code]
                expected = {
                    "shape": (12,),
                    "typestr": f"{'|' if bits == 8 else '<'}{letter}{bits // 8}",
                    "data": (array.address, not writable),
                    "version": 3,
                    "stream": self.stream.handle,
                }
                entries = array.__cuda_array_interface__
                require(entries == expected, f"{entries}, not {expected}")
                require(array.read() == numbers, "the numbers are not there")
                array.close()
        require(self.stream.__cuda_stream__() == (0, self.stream.handle), "__cuda_stream__")

    def numbers_to_other(self, kind):
        numbers = numbers_of(kind, 30)
        with self.other.scope(self.device):
            exported = self.stream.export_numbers(kind, numbers, (5, 6))
            tensor = self.other.take(exported)
            require(self.other.kind(tensor) == kind, f"its type is {self.other.kind(tensor)}")
            require(self.other.address(tensor) == exported.address, "it was copied")
            found = self.other.numbers(tensor)
            require(found == numbers, f"it has {found}")

    def numbers_from_other(self, kind):
        numbers, others = numbers_of(kind, 30), numbers_of(kind, 30, first=50)
        with self.other.scope(self.device):
            for version in ({}, {"max_version": (1, 0)}):
                tensor = self.other.of(kind, numbers, self.device)
                capsule = tensor.__dlpack__(stream=self.stream.handle, **version)
                found = self.stream.exchange(capsule, kind, others)
                expected = numbers, self.other.address(tensor), 30
                require(found == expected, f"{found}, not {expected}")
                left = self.other.numbers(tensor)
                require(left == others, f"not in place: {left}")

    def layout_to_other(self, shape, strides):
        numbers = numbers_of("float32", 24)
        with self.other.scope(self.device):
            exported = self.stream.export_numbers("float32", numbers, shape, strides)
            tensor = self.other.take(exported)
            layout = tuple(tensor.shape), self.other.strides(tensor)
            require(layout == (shape, strides), f"its layout is {layout}")
            require(self.other.address(tensor) == exported.address, "it was copied")
            found, expected = self.other.numbers(tensor), gathered(numbers, shape, strides)
            require(found == expected, f"{found}, not {expected}")

    def parts_from_other(self):
        """Parts whose elements follow each other can be taken."""
        with self.other.scope(self.device):
            whole = self.other.of("float32", numbers_of("float32", 24), self.device).reshape(4, 6)
            for part, first, count in ((whole[1:3], 6, 12), (whole[3], 18, 6), (whole.T.T, 0, 24)):
                others = numbers_of("float32", count, first=100)
                capsule = part.__dlpack__(stream=self.stream.handle)
                found = self.stream.exchange(capsule, "float32", others)
                address = self.other.address(whole) + 4 * first
                require(found[1:] == (address, count), f"the part from {first} on: {found[1:]}")
                require(self.other.numbers(part) == others, "not in place")

    def booleans_from_other(self):
        """They are bytes to cuda-core."""
        with self.other.scope(self.device):
            before, after = [True, False, True] * 8, [False, True, True] * 8
            mask = self.other.of("bool", before, self.device)
            found = self.stream.exchange(mask.__dlpack__(stream=self.stream.handle), "uint8", after)
            require(found == (before, self.other.address(mask), 24), f"{found}")
            require(self.other.numbers(mask) == after, "not in place")

    def refused_of_other(self):
        with self.other.scope(self.device):
            before = self.other.used()
            whole = self.other.of("float32", numbers_of("float32", 24), self.device).reshape(4, 6)
            doubles = self.other.of("float64", numbers_of("float64", 24), self.device)
            bools = self.other.of("bool", [True] * 24, self.device)
            for tensor, kind, says in (
                (whole.T, "float32", "there are gaps between the elements"),
                (whole[:, ::2], "float32", "there are gaps between the elements"),
                (doubles, "float32", "the elements are float64, not float32"),
                (whole, "int32", "the elements are float32, not int32"),
                (bools, "int8", "the elements are bool, not int8"),
            ):
                for version in ({}, {"max_version": (1, 0)}):
                    capsule = tensor.__dlpack__(stream=self.stream.handle, **version)
                    refused(says, lambda: self.stream.exchange(capsule, kind, numbers_of(kind, 24)))
            require(self.other.numbers(whole) == numbers_of("float32", 24), "a refused one was written")
            del whole, doubles, bools, tensor, capsule
            require(self.other.used() == before, "freed, although refused")
        with self.other.scope(1 - self.device):
            tensor = self.other.of("float32", numbers_of("float32", 24), 1 - self.device)
            capsule = tensor.__dlpack__(stream=-1)
            says = f"on device {1 - self.device}, the stream on device {self.device}"
            refused(says, lambda: self.stream.exchange(capsule, "float32", [0.0] * 24))

    def array_to_other(self, kind):
        """It works on a stream of cuda-core, which therefore reads what it has written."""
        numbers = numbers_of(kind, 30)
        array = self.stream.array(kind, numbers, True)
        with self.other.scope(self.device), self.other.on(self.stream):
            taken = self.other.take_array(array, self.device)
            require(self.other.kind(taken) == kind, f"its type is {self.other.kind(taken)}")
            require(self.other.address(taken) == array.address, "it was copied")
            found = self.other.numbers(taken)
            require(found == numbers, f"it has {found}")
            late = self.other.copy_late(taken)
            taken += 1
            found = array.read()
            require(found == [number + 1 for number in numbers], f"cuda-core reads {found}")
            require(self.other.numbers(late) == numbers, "the copy came before")
            del taken, late
        array.close()

    def read_only_to_other(self):
        array = self.stream.array("float32", numbers_of("float32", 30), False)
        with self.other.scope(self.device), self.other.on(self.stream):
            if self.other.takes_read_only:
                taken = self.other.take_array(array, self.device)
                require(self.other.numbers(taken) == numbers_of("float32", 30), "read otherwise")
                del taken
            else:
                try:
                    self.other.take_array(array, self.device)
                except TypeError as error:
                    require("read only" in str(error), f"refused otherwise: {error}")
                else:
                    require(False, "it took a read-only array, which this test does not know of")
        array.close()

    def read_only_tensor_to_other(self):
        """The protocol lets a consumer take what it must not write, or refuse it."""
        before = self.core.used(self.device)
        with self.other.scope(self.device):
            exported = self.stream.export(3.0, SHAPE, read_only=True)
            try:
                tensor = self.other.take(exported)
            except BufferError:
                require(exported.flags == READ_ONLY, "refused, although it may be written")
            except CoreError as error:
                says = "only the versioned struct can say"
                require(says in str(error), f"refused, but not because {says!r}: {error}")
            else:
                require(exported.flags == READ_ONLY, f"its flags are {exported.flags}")
                require(self.other.address(tensor) == exported.address, "it was copied")
                require(set(self.other.numbers(tensor)) == {3.0}, "read otherwise")
                del tensor
            require(self.core.used(self.device) == before, "freed, whether it was taken or not")


def describe(base, steps, raises):
    scopes = " > ".join(f"{name}({device})" for name, device in steps)
    return f"{'none' if base is None else base}: {scopes}{', raises' if raises else ''}"


def attempt(report, text, case):
    """Runs one case and prints its result."""
    try:
        case()
    except Exception as error:  # whatever it is, the other cases go on
        problem = str(error) if isinstance(error, AssertionError) else repr(error)
        report["failures"].append({"case": text, "error": problem})
        print(f"FAILED {text}: {problem}")
        return False
    report["passed"] += 1
    print(f"ok     {text}")
    return True


def nest_all(arguments, report):
    driver = Driver()
    cuda_core = CudaCore(arguments.library)
    if arguments.without_frameworks:
        others = [Raw("push", driver), Raw("set", driver)]
    else:
        others = [Torch(driver), Cupy(driver)]
    nest = Nest(driver, cuda_core, others)
    if arguments.first not in (None, *nest.members):
        raise NotRun(f"--first {arguments.first}: not one of {', '.join(nest.members)}")
    for name, member in nest.members.items():
        if member.version():
            report["versions"][name] = member.version()
    # The cases prove little without it.
    if attempt(report, "warm-up", lambda: nest.warm_up(arguments.first)):
        for case in nest.cases():
            attempt(report, describe(*case), lambda case=case: nest.run(*case))
    nest.close()
    pairs = itertools.product(others[: 1 if arguments.without_frameworks else None], DEVICES)
    for other, device in pairs:
        tensors = Tensors(cuda_core, other, device)
        for text, case in tensors.cases():
            attempt(report, f"tensors, device {device}: {text}", case)
        tensors.close()
    for other in others:
        if isinstance(other, Raw):
            other.close()
    # The library is a tool, too.
    library = os.path.abspath(arguments.library)
    seen = ["push outer", "push inner", "mark within", "pop", "pop"]
    attempt(report, "NVTX, with a tool", lambda: check_ranges(library, library, seen))
    attempt(report, "NVTX, without one", lambda: check_ranges(library, None, [""]))
    attempt(report, "NVTX, with a library that is no tool", lambda: check_ranges(library, "libm.so.6", [""]))
    drops = cuda_core.drop_failures()
    attempt(report, "drops", lambda: require(drops == 0, f"{drops} drops of cuda-core failed"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = os.path.dirname(os.path.abspath(__file__))
    default = os.path.join(here, "libcuda_interop.so")
    parser.add_argument("--library", default=default, metavar="FILE", help="libcuda_interop.so")
    parser.add_argument("--json", metavar="FILE", help="also writes the results to this file")
    parser.add_argument(
        "--first", metavar="NAME", help="the library that touches a GPU first: cuda_core, torch or cupy"
    )
    parser.add_argument(
        "--without-frameworks",
        action="store_true",
        help="nests cuda-core only with plain driver calls: push and set",
    )
    arguments = parser.parse_args()
    report = {"outcome": None, "versions": {}, "passed": 0, "failures": []}
    try:
        nest_all(arguments, report)
    except NotRun as reason:
        report["outcome"], code = f"not run: {reason}", 2
        print(report["outcome"])
    else:
        failed = len(report["failures"])
        code = 1 if failed else 0
        report["outcome"] = "failed" if code else "passed"
        versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
        print(f"{report['passed']} passed, {failed} failed ({versions or 'no frameworks'})")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    sys.exit(code)


if __name__ == "__main__":
    main()

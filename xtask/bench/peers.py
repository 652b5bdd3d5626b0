#!/usr/bin/env python3
"""Times in one Python package what `cargo xtask bench` times in cuda-core, under the same names.

Prints a line of JSON for the package's version, or for why it is absent, then one for each
operation: its name with the figure and its unit, or with what kept it from being measured. Batches
as there: the median over all of them counts, and what a batch enqueued is waited for outside the
clock. A call from Python costs its 30 to 60 ns, which are not taken off.

Exit code: 0 measured, 2 the package or a GPU is not there.
"""

import argparse
import atexit
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time

SMALL = 4096
MIB = 1 << 20
LARGE = 64 * MIB
BATCH = 100
GIB = 1 << 30

NOTHING = 'extern "C" __global__ void nothing() {}'
SIX = """extern "C" __global__ void six(
    char *a, char *b, char *c, char *d, char *e, char *f) {}"""
TWO = 'extern "C" __global__ void two(char *a, char *b) {}'

IN_TURN = "graph launch, kernel of another stream, in turn"

# Processes that end when this one does.
OTHER_RANKS = []


class Absent(Exception):
    """The package or device to measure is missing."""


class Bench:
    """Measures the wanted operations and prints each result at once, since the caller may stop this script."""

    def __init__(self, batches, wanted):
        self.batches = batches
        self.wanted = wanted

    def version(self, version):
        print(json.dumps({"version": version}), flush=True)

    def time(self, name, prepare, batch=BATCH, size=None):
        """`prepare` returns the call to time, and the one that waits for it; `size` is in bytes."""
        if self.wanted and name not in self.wanted:
            return
        try:
            call, settle = prepare()
            took = self.median(call, settle, batch, size is not None)
        except Exception as error:  # A release may lack one operation; the others are still reported.
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            print(json.dumps({"name": name, "error": said}), flush=True)
            return
        figure = (took, "ns") if size is None else (size / took, "GB/s")
        print(json.dumps({"name": name, "figure": figure[0], "unit": figure[1]}), flush=True)

    def median(self, call, settle, batch, large):
        clock = time.perf_counter_ns
        batches = min(self.batches, 7) if large else self.batches
        times = []
        for _ in range(with_warm_up(batches)):
            start = clock()
            for _ in range(batch):
                call()
            times.append((clock() - start) / batch)
            settle()
        return statistics.median(times[-batches:])


def with_warm_up(batches):
    """How many batches run, of which the last `batches` count."""
    return batches + batches // 10 + 1


def waited(call, settle, wait):
    """The call to time, which waits for what it enqueues if `wait` says so, and the one that waits."""

    def both():
        call()
        settle()

    return (both if wait else call), settle


def measure_cupy(bench):
    import cupy
    import numpy

    bench.version(cupy.__version__)
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.use()
    event = cupy.cuda.Event(disable_timing=True)
    settle = stream.synchronize

    def pinned(size):
        return numpy.frombuffer(cupy.cuda.alloc_pinned_memory(size), numpy.uint8, size)

    def pageable(size):
        return numpy.ones(size, numpy.uint8)

    def device(size):
        return cupy.zeros(size, cupy.uint8)

    def guard(ordinal):
        if ordinal >= cupy.cuda.runtime.getDeviceCount():
            raise Absent("another device")

        def call():
            with cupy.cuda.Device(ordinal):
                pass

        return call, settle

    def upload(host, wait=False):
        target = device(host.nbytes)

        return waited(lambda: target.set(host, stream=stream), settle, wait)

    def download(host, wait=False):
        source = device(host.nbytes)

        def call():
            source.get(stream=stream, out=host, blocking=wait)

        return call, settle

    def copy():
        source, target = device(SMALL), device(SMALL)
        return lambda: cupy.copyto(target, source), settle

    def fill():
        target = device(SMALL).data
        return lambda: target.memset_async(1, SMALL, stream), settle

    def launch(code, name, count):
        kernel = cupy.RawKernel(code, name)
        arguments = tuple(device(SMALL) for _ in range(count))
        return lambda: kernel((1,), (32,), arguments), settle

    def captured(kernels, code, name, count):
        kernel = cupy.RawKernel(code, name)
        arguments = tuple(device(SMALL) for _ in range(count))
        kernel((1,), (32,), arguments)  # Compiles it.

        def call():
            stream.begin_capture()
            for _ in range(kernels):
                kernel((1,), (32,), arguments)
            return stream.end_capture()

        return call

    def graph(kernels, wait=False):
        captured_graph = captured(kernels, SIX, "six", 6)()

        return waited(lambda: captured_graph.launch(stream), settle, wait)

    def in_turn():
        captured_graph = captured(20, SIX, "six", 6)()
        other = cupy.cuda.Stream(non_blocking=True)
        with other:
            kernel, _ = launch(SIX, "six", 6)

        def call():
            event.record(stream)
            other.wait_event(event)
            with other:
                kernel()
            event.record(other)
            stream.wait_event(event)
            captured_graph.launch(stream)

        return call, settle

    def all_reduce(size, wait=False):
        from cupy.cuda import nccl

        ranks = nccl.NcclCommunicator.initAll(2)
        parts = []
        for ordinal, rank in enumerate(ranks):
            with cupy.cuda.Device(ordinal):
                own = cupy.cuda.Stream(non_blocking=True)
                parts.append((rank, own, cupy.zeros(size // 4, cupy.float32)))
                cupy.cuda.runtime.deviceSynchronize()

        def settle_all():
            for _, own, _ in parts:
                own.synchronize()

        def call():
            nccl.groupStart()
            for rank, own, data in parts:
                at = data.data.ptr
                rank.allReduce(at, at, data.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, own.ptr)
            nccl.groupEnd()

        return waited(call, settle_all, wait)

    def all_reduce_alone():
        from cupy.cuda import nccl

        rank = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
        # Apart, or NCCL has nothing to enqueue.
        source, target = (cupy.zeros(SMALL // 4, cupy.float32) for _ in range(2))
        ends, types = (source.data.ptr, target.data.ptr), (nccl.NCCL_FLOAT32, nccl.NCCL_SUM)
        return lambda: rank.allReduce(*ends, source.size, *types, stream.ptr), settle

    def round_trip():
        source = device(SMALL)
        return lambda: cupy.from_dlpack(source), settle

    def stream_ordered():
        pool = cupy.cuda.MemoryAsyncPool()
        return lambda: pool.malloc(MIB), settle

    bench.time("guard, context already current", lambda: guard(0))
    bench.time("guard, another context", lambda: guard(1))
    bench.time("event record", lambda: (lambda: event.record(stream), settle))
    bench.time("stream wait for an event", lambda: (lambda: stream.wait_event(event), settle))
    bench.time(
        "event create + destroy", lambda: (lambda: cupy.cuda.Event(disable_timing=True), settle)
    )
    bench.time(
        "stream create + destroy", lambda: (lambda: cupy.cuda.Stream(non_blocking=True), settle), 10
    )
    bench.time("upload enqueue 4 KiB, pinned", lambda: upload(pinned(SMALL)))
    bench.time("download enqueue 4 KiB, pinned", lambda: download(pinned(SMALL)))
    bench.time("copy enqueue 4 KiB, on device", copy)
    bench.time("fill enqueue 4 KiB", fill)
    bench.time("launch, empty kernel", lambda: launch(NOTHING, "nothing", 0))
    bench.time("launch, 6 buffers", lambda: launch(SIX, "six", 6))
    bench.time("graph launch, 20 kernels, 6 buffers", lambda: graph(20), 20)
    # It instantiates the graph, too.
    bench.time(
        "capture of 100 kernels with 2 buffers", lambda: (captured(100, TWO, "two", 2), settle), 1
    )
    bench.time("1000 kernels as a graph, by stream", lambda: graph(1000, True), 1)
    bench.time(IN_TURN, in_turn, 20)
    bench.time("all-reduce enqueue 4 KiB, one rank", all_reduce_alone, 20)
    bench.time("all-reduce enqueue 4 KiB, 2 devices", lambda: all_reduce(SMALL), 20)
    bench.time("all-reduce + wait 1 GiB, 2 devices", lambda: all_reduce(GIB, True), 1, GIB)
    bench.time("DLPack export + import + deletion", round_trip)
    bench.time("alloc + free 1 MiB, cached", lambda: (lambda: cupy.cuda.alloc(MIB), settle))
    bench.time("alloc + free 1 MiB, stream-ordered", stream_ordered)
    bench.time(
        "alloc + free 1 MiB, pinned", lambda: (lambda: cupy.cuda.alloc_pinned_memory(MIB), settle)
    )
    bench.time("upload + wait 4 KiB, pinned", lambda: upload(pinned(SMALL), wait=True), 20)
    bench.time("upload + wait 64 MiB, pinned", lambda: upload(pinned(LARGE), True), 1, LARGE)
    bench.time("download + wait 64 MiB, pinned", lambda: download(pinned(LARGE), True), 1, LARGE)
    bench.time("upload 4 KiB, borrowed slice", lambda: upload(pageable(SMALL)))
    bench.time("download 4 KiB, borrowed slice", lambda: download(pageable(SMALL), True), 20)
    bench.time(
        "slice upload + wait 64 MiB beside pinned memory",
        lambda: upload(pageable(LARGE), True),
        1,
        LARGE,
    )
    bench.time(
        "slice download + wait 64 MiB beside pinned memory",
        lambda: download(pageable(LARGE), True),
        1,
        LARGE,
    )


def measure_torch(bench):
    import torch

    if not torch.cuda.is_available():
        raise Absent("PyTorch sees no GPU")
    bench.version(torch.__version__)
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    event = torch.cuda.Event()
    event.record(stream)
    settle = stream.synchronize

    def host(size, pinned):
        return torch.ones(size, dtype=torch.uint8, pin_memory=pinned)

    def device(size):
        return torch.zeros(size, dtype=torch.uint8, device="cuda")

    def guard(ordinal):
        if ordinal >= torch.cuda.device_count():
            raise Absent("another device")

        def call():
            with torch.cuda.device(ordinal):
                pass

        return call, settle

    def transfer(size, pinned, up, wait):
        near, far = host(size, pinned), device(size)
        target, source = (far, near) if up else (near, far)

        return waited(lambda: target.copy_(source, non_blocking=pinned), settle, wait)

    def copy():
        source, target = device(SMALL), device(SMALL)
        return lambda: target.copy_(source), settle

    def fill():
        target = device(SMALL)
        return lambda: target.zero_(), settle

    def captured(kernels, **options):
        data = device(SMALL)
        graph = torch.cuda.CUDAGraph(**options)
        with torch.cuda.graph(graph):
            for _ in range(kernels):
                data.zero_()
        return graph

    def graph(kernels, wait=False):
        return waited(captured(kernels).replay, settle, wait)

    def instantiate():
        return captured(1000, keep_graph=True).instantiate, settle

    def in_turn():
        data, whole, other = device(SMALL), captured(20), torch.cuda.Stream()

        def call():
            other.wait_stream(stream)
            with torch.cuda.stream(other):
                data.zero_()
            stream.wait_stream(other)
            whole.replay()

        return call, settle

    def round_trip():
        source = device(SMALL)
        return lambda: torch.from_dlpack(source), settle

    def all_reduce(size, wait=False):
        from torch.cuda import nccl

        parts = [torch.zeros(size // 4, device=f"cuda:{ordinal}") for ordinal in range(2)]

        def settle_all():
            for ordinal in range(2):
                torch.cuda.synchronize(ordinal)

        return waited(lambda: nccl.all_reduce(parts), settle_all, wait)

    def all_reduce_alone():
        # In place, the only way: NCCL has nothing to enqueue.
        return joined_by_torch(0, 1, torch.distributed.HashStore(), SMALL), settle

    def all_reduce_of_two():
        store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        start_other_rank(store.port, GIB, bench.batches)
        return waited(joined_by_torch(0, 2, store, GIB), torch.cuda.synchronize, True)

    def alloc():
        return lambda: torch.empty(MIB, dtype=torch.uint8, device="cuda"), settle

    def alloc_pinned():
        return lambda: torch.empty(MIB, dtype=torch.uint8, pin_memory=True), settle

    bench.time("guard, context already current", lambda: guard(0))
    bench.time("guard, another context", lambda: guard(1))
    bench.time("event record", lambda: (lambda: event.record(stream), settle))
    bench.time("stream wait for an event", lambda: (lambda: stream.wait_event(event), settle))
    bench.time("upload enqueue 4 KiB, pinned", lambda: transfer(SMALL, True, True, False))
    bench.time("download enqueue 4 KiB, pinned", lambda: transfer(SMALL, True, False, False))
    bench.time("copy enqueue 4 KiB, on device", copy)
    bench.time("fill enqueue 4 KiB", fill)
    # Its kernels are fills.
    bench.time("graph launch, 20 kernels, 6 buffers", lambda: graph(20), 20)
    # It instantiates the graph, too.
    bench.time("capture of 100 kernels with 2 buffers", lambda: (lambda: captured(100), settle), 1)
    bench.time("instantiate 1000 kernels", instantiate, 1)
    bench.time("1000 kernels as a graph, by stream", lambda: graph(1000, True), 1)
    bench.time(IN_TURN, in_turn, 20)
    bench.time("all-reduce enqueue 4 KiB, 2 devices", lambda: all_reduce(SMALL), 20)
    bench.time("all-reduce + wait 1 GiB, 2 devices", lambda: all_reduce(GIB, True), 1, GIB)
    bench.time("DLPack export + import + deletion", round_trip)
    bench.time("alloc + free 1 MiB, cached", alloc)
    bench.time("alloc + free 1 MiB, pinned", alloc_pinned)
    bench.time("upload + wait 4 KiB, pinned", lambda: transfer(SMALL, True, True, True), 20)
    bench.time("upload 4 KiB, borrowed slice", lambda: transfer(SMALL, False, True, False))
    bench.time("download 4 KiB, borrowed slice", lambda: transfer(SMALL, False, False, True), 20)
    for pinned, up, name in [
        (True, True, "upload + wait 64 MiB, pinned"),
        (True, False, "download + wait 64 MiB, pinned"),
        (False, True, "slice upload + wait 64 MiB beside pinned memory"),
        (False, False, "slice download + wait 64 MiB beside pinned memory"),
    ]:
        bench.time(name, lambda: transfer(LARGE, pinned, up, True), 1, LARGE)
    # The last, since they start threads.
    bench.time("all-reduce enqueue 4 KiB, one rank", all_reduce_alone, 20)
    bench.time("all-reduce + wait 1 GiB, 2 processes", all_reduce_of_two, 1)


def joined_by_torch(rank, ranks, store, size):
    """An all-reduce of this process, whose group keeps the store by which the ranks join."""
    import torch
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
    else:
        atexit.register(distributed.destroy_process_group)
    distributed.init_process_group("nccl", store=store, rank=rank, world_size=ranks)
    data = torch.zeros(size // 4, device=f"cuda:{rank}")
    return lambda: distributed.all_reduce(data)


def start_other_rank(port, size, batches):
    """Starts this script again as rank 1 of 2."""
    # `multiprocessing` cannot: a process that it spawns does not have the functions of a script given by `-c`.
    script = sys.orig_argv[: 1 - len(sys.argv)]
    rank = [f"--batches={batches}", f"--other-rank={port},{size}", "PyTorch"]
    OTHER_RANKS.append(subprocess.Popen(script + rank, stdin=subprocess.PIPE))


def end_with_input():
    sys.stdin.read()
    os._exit(1)


def be_other_rank(port, size, batches):
    """Makes the calls of rank 1, or ends with the process that started it, whose pipe is then closed."""
    import torch

    threading.Thread(target=end_with_input, daemon=True).start()
    torch.cuda.set_device(1)
    store = torch.distributed.TCPStore("localhost", port, wait_for_workers=False)
    reduce = joined_by_torch(1, 2, store, size)
    for _ in range(with_warm_up(batches)):
        reduce()
    torch.cuda.synchronize()


def measure_cuda_core(bench):
    import cuda.core

    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
        import cuda.core as core
    except ImportError:  # Experimental until 0.5.
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch
        import cuda.core.experimental as core

    bench.version(cuda.core.__version__)
    main = Device(0)
    main.set_current()
    stream = main.create_stream()
    settle = stream.sync
    event = stream.record()

    def device(size):
        return main.memory_resource.allocate(size, stream=stream)

    def pinned(size):
        return core.LegacyPinnedMemoryResource().allocate(size)

    def another():
        other = Device(1)  # Raises if there is none.

        def call():
            # It restores nothing, so this code does.
            other.set_current()
            main.set_current()

        return call, settle

    def copy(target, source, wait=False):
        return waited(lambda: target.copy_from(source, stream=stream), settle, wait)

    def fill():
        target = device(SMALL)
        return lambda: target.fill(1, stream=stream), settle

    def work(code, name, count):
        """What `launch` takes after the stream."""
        options = ProgramOptions(arch=f"sm_{main.arch}")
        kernel = Program(code, "c++", options).compile("cubin").get_kernel(name)
        return LaunchConfig(grid=1, block=32), kernel, *(device(SMALL) for _ in range(count))

    def launching(code, name, count):
        what = work(code, name, count)
        return lambda: launch(stream, *what), settle

    def building(kernels, *what):
        def call():
            builder = stream.create_graph_builder()
            builder.begin_building()
            for _ in range(kernels):
                launch(builder, *what)
            return builder.end_building()

        return call

    def captured(kernels, code, name, count):
        build = building(kernels, *work(code, name, count))
        return lambda: build().complete()

    def graph(kernels, wait=False):
        captured_graph = captured(kernels, SIX, "six", 6)()

        return waited(lambda: captured_graph.launch(stream), settle, wait)

    def instantiate():
        return building(1000, *work(SIX, "six", 6))().complete, settle

    def update():
        # In turn: an update to what the executable has changes nothing.
        builders = [building(1000, *work(SIX, "six", 6))() for _ in range(2)]
        whole, later = builders[0].complete(), itertools.cycle(reversed(builders))
        return lambda: whole.update(next(later)), settle

    def set_arguments():
        config, kernel, *buffers = what = work(TWO, "two", 2)
        built = building(1, *what)()
        (node,) = built.graph_definition.nodes()
        view = built.complete()[node]
        return lambda: view.update(config=config, kernel=kernel, args=buffers), settle

    def in_turn():
        what, whole, other = work(SIX, "six", 6), captured(20, SIX, "six", 6)(), main.create_stream()

        def call():
            other.wait(stream)
            launch(other, *what)
            stream.wait(other)
            whole.launch(stream)

        return call, settle

    def alloc():
        return lambda: device(MIB).close(stream), settle

    def alloc_pinned():
        pool = core.PinnedMemoryResource()
        return lambda: pool.allocate(MIB, stream=stream).close(stream), settle

    bench.time("guard, context already current", lambda: (main.set_current, settle))
    bench.time("guard, another context", another)
    bench.time("event record", lambda: (lambda: stream.record(event), settle))
    bench.time("stream wait for an event", lambda: (lambda: stream.wait(event), settle))
    bench.time("event create + destroy", lambda: (lambda: main.create_event().close(), settle))
    bench.time(
        "stream create + destroy", lambda: (lambda: main.create_stream().close(), settle), 10
    )
    bench.time("upload enqueue 4 KiB, pinned", lambda: copy(device(SMALL), pinned(SMALL)))
    bench.time("download enqueue 4 KiB, pinned", lambda: copy(pinned(SMALL), device(SMALL)))
    bench.time("copy enqueue 4 KiB, on device", lambda: copy(device(SMALL), device(SMALL)))
    bench.time("fill enqueue 4 KiB", fill)
    bench.time("launch, empty kernel", lambda: launching(NOTHING, "nothing", 0))
    bench.time("launch, 6 buffers", lambda: launching(SIX, "six", 6))
    bench.time("graph launch, 20 kernels, 6 buffers", lambda: graph(20), 20)
    # It instantiates the graph, too.
    bench.time(
        "capture of 100 kernels with 2 buffers", lambda: (captured(100, TWO, "two", 2), settle), 1
    )
    bench.time("instantiate 1000 kernels", instantiate, 1)
    bench.time("update of 1000 kernels", update, 1)
    bench.time("set a kernel's arguments in a graph", set_arguments)
    bench.time("1000 kernels as a graph, by stream", lambda: graph(1000, True), 1)
    bench.time(IN_TURN, in_turn, 20)
    # Its fastest pool is the driver's.
    bench.time("alloc + free 1 MiB, cached", alloc)
    bench.time("alloc + free 1 MiB, stream-ordered", alloc)
    bench.time("alloc + free 1 MiB, pinned", alloc_pinned)
    bench.time("upload + wait 4 KiB, pinned", lambda: copy(device(SMALL), pinned(SMALL), True), 20)
    bench.time(
        "upload + wait 64 MiB, pinned", lambda: copy(device(LARGE), pinned(LARGE), True), 1, LARGE
    )
    bench.time(
        "download + wait 64 MiB, pinned", lambda: copy(pinned(LARGE), device(LARGE), True), 1, LARGE
    )


PACKAGES = {"CuPy": measure_cupy, "PyTorch": measure_torch, "cuda.core": measure_cuda_core}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("operation", nargs="*", help="names of operations; all if none is given")
    parser.add_argument("--batches", type=int, default=201, help="batches of each operation")
    parser.add_argument("--other-rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.other_rank:
        be_other_rank(*map(int, arguments.other_rank.split(",")), arguments.batches)
        return 0
    try:
        PACKAGES[arguments.package](Bench(arguments.batches, arguments.operation))
    except ImportError:
        print(json.dumps({"absent": "not there"}))
        return 2
    except Absent as error:
        print(json.dumps({"absent": str(error)}))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

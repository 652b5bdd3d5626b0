#!/usr/bin/env python3
"""Writes the requests to PyTorch's caching allocator as a log for `cargo xtask replay`.

    from_pytorch.py --record LOG        trains a small transformer on the GPU and records it
    from_pytorch.py SNAPSHOT LOG        converts a pickle of torch.cuda.memory._dump_snapshot

Sizes and order only: blocks are numbered, and times, stack traces and real addresses stay behind.
The log's heading says what PyTorch reserved at its peak for the same requests. docs/traces.md
describes the format.
"""

import argparse
import pickle
import sys

COLUMNS = "time_ns,thread,device,stream,op,address,bytes"


def convert(entries, device):
    """Lines of the log, and the peaks of what was requested and reserved, in bytes.

    `entries` is PyTorch's history of one device, from before its first allocation on.
    """
    lines = []
    numbers = {}  # address -> (number, bytes), of live blocks
    free_numbers = []
    streams = {}  # handle -> number in the log
    requested = requested_peak = reserved = reserved_peak = 0
    for entry in entries:
        action, address, size = entry["action"], entry.get("addr"), entry.get("size", 0)
        if action == "segment_alloc" or action == "segment_map":
            reserved += size
            reserved_peak = max(reserved_peak, reserved)
        elif action == "segment_free" or action == "segment_unmap":
            reserved -= size
        elif action == "alloc":
            # PyTorch allocates a block even for zero bytes; other allocators are asked for zero.
            if size == 0:
                continue
            number = free_numbers.pop() if free_numbers else len(numbers) + 1
            numbers[address] = (number, size)
            requested += size
            requested_peak = max(requested_peak, requested)
            stream = streams.setdefault(entry.get("stream", 0), len(streams))
            lines.append((stream, "allocate", number, size))
        elif action == "free_requested" and address in numbers:
            # Means a free in the log: the owner has released it, streams may still be using it.
            number, size = numbers.pop(address)
            free_numbers.append(number)
            requested -= size
            stream = streams.setdefault(entry.get("stream", 0), len(streams))
            lines.append((stream, "deallocate", number, size))
    text = [
        f"{time},0,{device},{stream},{op},{number:#x},{size}"
        for time, (stream, op, number, size) in enumerate(lines)
    ]
    return text, requested_peak, reserved_peak


def write(path, snapshot, device, source):
    entries = snapshot["device_traces"][device]
    if not any(entry["action"] == "alloc" for entry in entries):
        sys.exit(f"the snapshot has no history of device {device}")
    lines, requested, reserved = convert(entries, 0)
    heading = [
        "# cuda-core allocation log, version 1",
        f"# source: {source}",
        f"# peak requested: {requested}",
        f"# peak reserved by PyTorch: {reserved}",
        COLUMNS,
    ]
    with open(path, "w", encoding="ascii") as log:
        log.write("\n".join(heading + lines) + "\n")
    print(f"{path}: {len(lines)} operations")
    print(f"requested at the peak: {requested}, reserved by PyTorch at its peak: {reserved}")
    return requested, reserved


def record(path, steps, layers, width, heads, batch):
    """Trains a small decoder for a few steps and writes its requests."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            many, length, _ = x.shape
            parts = self.attend(self.before_attention(x)).chunk(3, dim=-1)
            q, k, v = (part.view(many, length, heads, -1).transpose(1, 2) for part in parts)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(seen.transpose(1, 2).reshape(many, length, width))
            return x + self.narrow(functional.gelu(self.widen(self.before_mlp(x))))

    class Decoder(nn.Module):
        def __init__(self, words, longest):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, tokens):
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.words(tokens) + self.places(places)
            for block in self.blocks:
                x = block(x)
            return self.head(self.last(x))

    torch.manual_seed(1)
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(
        context=None, stacks="python", max_entries=1_000_000
    )
    words, longest = 16384, 512
    model = Decoder(words, longest).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False)
    for step in range(steps):
        # Batches of several lengths, as in a real data set.
        length = longest - 96 * (step % 3)
        tokens = torch.randint(words, (batch, length + 1), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(tokens[:, :-1])
            loss = functional.cross_entropy(
                scores.reshape(-1, words).float(), tokens[:, 1:].reshape(-1)
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    print(f"loss after {steps} steps: {loss.item():.3f}")
    reserved = torch.cuda.max_memory_reserved()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    name = torch.cuda.get_device_name()
    source = (
        f"PyTorch {torch.__version__} on {name}: {steps} training steps of a decoder with {layers}"
        f" layers of width {width}, batches of {batch} x at most {longest} tokens, AdamW, bf16"
    )
    _, traced = write(path, snapshot, torch.cuda.current_device(), source)
    if traced != reserved:
        sys.exit(f"the history adds up to {traced} reserved bytes, PyTorch says {reserved}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", metavar="SNAPSHOT LOG")
    parser.add_argument("--record", metavar="LOG", help="train and record, instead of converting")
    parser.add_argument("--device", type=int, default=0, help="whose history to convert")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    if args.record and not args.paths:
        record(args.record, args.steps, args.layers, args.width, args.heads, args.batch)
    elif not args.record and len(args.paths) == 2:
        with open(args.paths[0], "rb") as file:
            snapshot = pickle.load(file)
        write(args.paths[1], snapshot, args.device, "a snapshot of PyTorch's caching allocator")
    else:
        parser.error("either --record LOG, or SNAPSHOT LOG")


if __name__ == "__main__":
    main()

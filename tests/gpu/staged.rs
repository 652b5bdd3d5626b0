//! J: copies of borrowed slices, in every form and size, on every kind of stream.

use std::sync::Arc;

use cuda_core::adaptors::Statistics;
use cuda_core::{Allocator, Device, Error, Result, with_allocator};
use support::{gpu_test, one_stream, pattern};

use crate::forms::{Down, Up, contents, every_form, same, scaled, varied};

/// Sizes around the library's thresholds: alignment of a staged piece, half a chunk, a chunk.
const SIZES: [usize; 14] = [
    1, 2, 3, 255, 256, 257, 4095, 4097, 524_287, 524_288, 524_289, 1_048_575, 1_048_576, 1_048_577,
];

gpu_test! {
    needs 1;
    fn j_sizes() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        for len in SIZES {
            every_form(&stream, &stream, len)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_sizes_on_the_legacy_default_stream() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let (home, stream) = (context.create_stream()?, context.default_stream()?);
        for len in [0, 1, 4097, 1_048_577] {
            every_form(&stream, &home, len)?;
            // The copying stream is also the home stream.
            every_form(&stream, &stream, len)?;
            every_form(&home, &stream, len)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_sizes_on_the_per_thread_default_stream() -> Result<()> {
        let (context, home) = one_stream()?;
        for len in [0, 1, 4097, 1_048_577] {
            every_form(&context.per_thread_stream()?, &home, len)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_sizes_on_a_blocking_stream() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let stream = context.stream_builder().blocking().build()?;
        let home = context.default_stream()?;
        for len in [0, 1, 4097, 1_048_577] {
            every_form(&stream, &home, len)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_sizes_in_a_created_context() -> Result<()> {
        let flags = cuda_core::ContextFlags::default();
        let context = cuda_core::Context::new(Device::get(0)?, flags)?;
        let home = context.create_stream()?;
        for len in [0, 1, 4097, 1_048_577] {
            every_form(&home, &home, len)?;
            every_form(&context.default_stream()?, &home, len)?;
            every_form(&context.per_thread_stream()?, &home, len)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_staged_large() -> Result<()> {
        let len = scaled(5 << 20, 5 << 20, 2 << 20) + 3;
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(len + 2)?;
        // Copies at an odd offset, between bytes that must not change.
        stream.fill(&mut buffer, 0x11)?;
        for up in Up::ALL {
            let bytes = varied(up as u64 + 20, len);
            up.send(&stream, &bytes, buffer.slice_mut(1..=len)?)?;
            for down in Down::ALL {
                let what = format!("up {up:?}, down {down:?}");
                same(&down.fetch(&stream, buffer.slice(1..=len)?)?, &bytes, &what);
            }
        }
        let mut edges = [0; 2];
        stream.scope(|scope| {
            let [first, last] = edges.each_mut().map(std::slice::from_mut);
            scope.download(buffer.slice(..1)?, first)?;
            scope.download(buffer.slice(len + 1..)?, last)
        })?;
        assert_eq!(edges, [0x11; 2]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_staged_source_may_change_at_once() -> Result<()> {
        let len = scaled(5 << 20, 5 << 20, 2 << 20) + 3;
        let stream = Device::get(0)?.create_stream()?;
        for len in [3, 4097, len] {
            let mut bytes = varied(30, len);
            let mut buffer = stream.alloc::<u8>(len)?;
            stream.upload(&bytes, &mut buffer)?;
            bytes.fill(0);
            drop(bytes);
            same(&contents(&stream, &buffer)?, &varied(30, len), "the content at the call");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_staged_many_small() -> Result<()> {
        // More pieces than fit a chunk. None waits for another.
        const PIECE: usize = 4097;
        let stream = Device::get(0)?.create_stream()?;
        let bytes = varied(40, scaled(3_000, 600, 300) * PIECE);
        let mut buffer = stream.alloc::<u8>(bytes.len())?;
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            let start = index * PIECE;
            stream.upload(piece, buffer.slice_mut(start..start + PIECE)?)?;
        }
        same(&contents(&stream, &buffer)?, &bytes, "all pieces");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_scope_collects_many() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        // More bytes than a scope stages without waiting in between.
        let lens = [1, 0, 300, 5 << 20, 4097, scaled(14 << 20, 14 << 20, 1 << 20) + 1, 2];
        let mut buffers = Vec::new();
        for (seed, len) in lens.into_iter().enumerate() {
            let mut buffer = stream.alloc::<u8>(len)?;
            stream.upload(&varied(seed as u64, len), &mut buffer)?;
            buffers.push(buffer);
        }
        let mut backs = lens.map(|len| vec![0_u8; len]);
        let returned = stream.scope(|scope| {
            for (buffer, back) in buffers.iter().zip(&mut backs) {
                scope.download(buffer, back)?;
            }
            Ok("the closure's own value")
        })?;
        assert_eq!(returned, "the closure's own value");
        for (seed, back) in backs.iter().enumerate() {
            same(back, &varied(seed as u64, back.len()), &format!("slice {seed}"));
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_scope_that_fails_or_panics_writes_nothing() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(100)?;
        stream.upload(&pattern(3, 100), &mut buffer)?;
        let mut back = [9; 100];
        let refused = stream.scope(|scope| {
            scope.download(&buffer, &mut back)?;
            scope.download(&buffer, &mut [])
        });
        assert!(matches!(refused, Err(Error::LengthMismatch(_))), "{refused:?}");
        assert_eq!(back, [9; 100]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stream.scope(|scope| -> Result<()> {
                scope.download(&buffer, &mut back)?;
                std::panic::panic_any(42);
            })
        }));
        let payload = panicked.expect_err("the panic goes on");
        assert_eq!(payload.downcast_ref(), Some(&42));
        assert_eq!(back, [9; 100]);
        // The staged pieces of the failed scope do not affect later copies.
        every_form(&stream, &stream, 5000)
    }
}

gpu_test! {
    needs 1;
    fn j_copies_to_new_memory() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        for len in [0, 1, 4097, 524_289, scaled(5 << 20, 5 << 20, 600_000)] {
            let bytes = pattern(6, len);
            let buffer = stream.upload_new(&bytes)?;
            assert_eq!((buffer.len(), buffer.device()), (len, device));
            let copied = stream.copy_new(&buffer)?;
            assert!(len == 0 || copied.as_raw() != buffer.as_raw());
            drop(buffer);
            same(&stream.download_vec(&copied)?, &bytes, "the copy of the copy");
            let part = stream.copy_new(copied.slice(len / 2..)?)?;
            same(&stream.download_vec(&part)?, &bytes[len / 2..], "a part");
            let other = stream.context().default_stream()?;
            same(&other.download_vec(part.slice(..len / 4)?)?, &bytes[len / 2..][..len / 4], "less");
        }
        let words = stream.upload_new(&[[1_u16, 2, 3], [4, 5, 6]])?;
        assert_eq!(stream.download_vec(&words)?, [[1, 2, 3], [4, 5, 6]]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_copies_to_new_pinned_memory() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let buffer = stream.upload_new(&pattern(8, 4097))?;
        let host = stream.download_pinned(buffer.slice(1..)?)?;
        drop(buffer);
        assert_eq!(host.as_slice()?, &pattern(8, 4097)[1..]);
        let other = stream.context().default_stream()?;
        assert!(other.download_pinned(&stream.alloc::<u8>(0)?)?.is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_copies_to_new_memory_of_the_scopes_allocator() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let statistics = Arc::new(Statistics::new(Allocator::cache()));
        let counted = Allocator::new(statistics.clone());
        with_allocator(&counted, || {
            let buffer = stream.upload_new(&pattern(7, 1000))?;
            let copied = stream.copy_new(buffer.slice(100..)?)?;
            assert_eq!(statistics.counters().bytes.value, 1900);
            same(&stream.download_vec(&copied)?, &pattern(7, 1000)[100..], "counted");
            Ok::<(), Error>(())
        })?;
        drop(stream.upload_new(&[1_u8])?);
        assert_eq!(statistics.counters().bytes.total, 1900, "outside of the scope");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn j_copies_to_new_memory_of_another_device() -> Result<()> {
        let (here, there) = (Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?);
        let bytes = pattern(8, 100_000);
        let buffer = here.upload_new(&bytes)?;
        let copied = there.copy_new(&buffer)?;
        assert_eq!(copied.device(), there.device());
        same(&there.download_vec(&copied)?, &bytes, "from the other device");
        let refused = there.download_vec(&buffer);
        assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
        Ok(())
    }
}

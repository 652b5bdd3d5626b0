//! Memory shared by two processes.

use std::env;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use cuda_core::{
    Device, DeviceBuffer, Error, MemoryPool, Result,
    interop::{IpcMemoryHandle, PoolPointer, ShareableHandle},
    managed::ManagedBuffer,
};
use support::{gpu_test, pattern, refusal};

use crate::forms::{contents, same};

const LEN: usize = 2 << 20;

/// The handle that the child opens, in hexadecimal digits.
const HANDLE: &str = "CUDA_TESTS_SHARED_MEMORY";

/// The line that a child prints once its body has completed.
const DONE: &str = "the child has come to its end";

fn digits(bytes: &[u8; 64]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn handle() -> Option<[u8; 64]> {
    let text = env::var(HANDLE).ok()?;
    let mut bytes = [0; 64];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..][..2], 16).expect("two digits");
    }
    Some(bytes)
}

/// Runs this test again in another process, which receives `name` and `stdin`.
fn in_another_process(test: &str, name: &[u8; 64], stdin: Stdio) {
    let (_, test) = test.split_once("::").expect("a path");
    let output = Command::new(env::current_exe().expect("the path of the test program"))
        .args(["--include-ignored", "--nocapture", "--exact", test])
        .env(HANDLE, digits(name))
        .stdin(stdin)
        .output()
        .expect("the test program starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains(DONE),
        "{}\n{printed}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

gpu_test! {
    needs 1, real;
    fn s43_opened_in_another_process() -> Result<()> {
        let device = Device::get(0)?;
        let (context, stream) = (device.context()?, device.create_stream()?);
        if let Some(bytes) = handle() {
            let handle = IpcMemoryHandle::from_bytes(bytes);
            // SAFETY: the parent keeps its buffer until this process has ended, and waits for it.
            let mut buffer = unsafe { DeviceBuffer::<u8>::open_ipc(&context, handle, LEN) }?;
            same(&contents(&stream, &buffer)?, &pattern(43, LEN), "the parent's");
            stream.fill(buffer.slice_mut(..1000)?, 0x7E)?;
            stream.synchronize()?;
            buffer.close()?;
            // SAFETY: the parent keeps its buffer until this process has ended; opening fails, so the memory
            // is not used.
            let too_many = unsafe { DeviceBuffer::<u8>::open_ipc(&context, handle, 1 << 40) };
            let error = too_many.expect_err("more than there is");
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
            println!("{DONE}");
            return Ok(());
        }
        let mut buffer = context.alloc::<u8>(LEN)?;
        stream.upload(&pattern(43, LEN), &mut buffer)?;
        stream.synchronize()?;
        let handle = buffer.ipc_handle()?;
        in_another_process(
            concat!(module_path!(), "::needs_1"),
            &handle.to_bytes(),
            Stdio::null(),
        );
        let back = contents(&stream, &buffer)?;
        same(&back[..1000], &[0x7E; 1000], "the child's");
        same(&back[1000..], &pattern(43, LEN)[1000..], "beside it");
        Ok(())
    }
}

gpu_test! {
    needs 1, real;
    fn s43_a_pool_in_another_process() -> Result<()> {
        let device = Device::get(0)?;
        let (context, stream) = (device.context()?, device.create_stream()?);
        if let Some(bytes) = handle() {
            // The parent passes a pool of this device as its child's standard input.
            let fd = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
            // SAFETY: the descriptor is of that pool; the handle of a clone is not zero.
            let pool = unsafe { MemoryPool::import_fd(device, fd) }?;
            assert!(refusal(stream.alloc_from::<u8>(&pool, 10)).contains("another process's"));
            let name = PoolPointer::from_bytes(bytes);
            // SAFETY: the parent keeps its buffer until this process has ended, and waits for it.
            let mut buffer = unsafe { pool.import_pointer::<u8>(&context, name, LEN) }?;
            same(&contents(&stream, &buffer)?, &pattern(44, LEN), "the parent's");
            stream.fill(buffer.slice_mut(..1000)?, 0x7E)?;
            drop(pool);
            buffer.close()?;
            println!("{DONE}");
            return Ok(());
        }
        let pool = MemoryPool::builder(device).shareable(ShareableHandle::PosixFd).build()?;
        let mut buffer = stream.alloc_from::<u8>(&pool, LEN)?;
        stream.upload(&pattern(44, LEN), &mut buffer)?;
        stream.synchronize()?;
        // The driver does not export pointers of a pool that was never exported.
        pool.export_pointer(&buffer).expect_err("not exported yet");
        let fd = pool.export_fd()?;
        let name = pool.export_pointer(&buffer)?;
        in_another_process(
            concat!(module_path!(), "::needs_1"),
            &name.to_bytes(),
            fd.into(),
        );
        let back = contents(&stream, &buffer)?;
        same(&back[..1000], &[0x7E; 1000], "the child's");
        same(&back[1000..], &pattern(44, LEN)[1000..], "beside it");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s43_what_has_no_handle() -> Result<()> {
        let device = Device::get(0)?;
        let (context, stream) = (device.context()?, device.create_stream()?);
        let refused = |handle: Result<IpcMemoryHandle>| refusal(handle);
        refused(stream.alloc::<u8>(100)?.ipc_handle());
        refused(context.alloc::<u8>(0)?.ipc_handle());
        refused(ManagedBuffer::<u8>::new(&context, 100)?.ipc_handle());
        let memory = context.alloc::<u8>(100)?;
        let handle = memory.ipc_handle()?;
        let address = memory.as_raw();
        // SAFETY: the memory is its own owner, and no other code uses it.
        let foreign =
            unsafe { DeviceBuffer::<u8>::from_raw(address, 100, &context, memory) }?;
        refused(foreign.ipc_handle());
        assert_eq!(IpcMemoryHandle::from_bytes(handle.to_bytes()), handle);
        // SAFETY: no memory is opened.
        let none = unsafe { DeviceBuffer::<u8>::open_ipc(&context, handle, 0) };
        assert!(matches!(none, Err(Error::Invalid(_))), "{none:?}");
        Ok(())
    }
}

//~ E0277
use cuda_core::{Device, Guard};

#[cfg(misuse)]
type Shared<'a> = &'a Guard;

#[cfg(not(misuse))]
type Shared<'a> = &'a Device;

fn share(shared: Shared<'_>) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = &shared;
        });
    });
}

fn main() {}

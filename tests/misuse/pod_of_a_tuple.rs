//~ an error without a code
//~ says structs with named fields and without generics
#[cfg(misuse)]
cuda_core::pod! {
    struct Pair(f32, f32);
}

#[cfg(not(misuse))]
cuda_core::pod! {
    struct Pair { first: f32, second: f32 }
}

fn main() {}

//! The C functions of the simulated driver, which its crate defines, as a library.

// Linked although nothing here names it: its functions are exported.
extern crate simulator as _;

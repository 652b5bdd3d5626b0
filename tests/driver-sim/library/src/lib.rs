//! A library that exports the C functions of the simulated driver.

// Linked although nothing here names it: its functions are exported.
extern crate simulator as _;

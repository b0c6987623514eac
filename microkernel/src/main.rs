//! The kernel binary: everything is in the library.
#![no_std]
#![no_main]

use microkernel as _;

//! The service as a whole, against smoltcp's TCP over a simulated wire, and against peers of our own making.

mod attack;
mod limits;
mod network;
mod restart;
mod transfer;
mod wire;

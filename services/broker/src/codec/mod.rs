//! MQTT 3.1.1 packets: strict parser over a private byte slice, and the encoder of what a server sends.
//!
//! Nothing is copied: parsed packets borrow from the slice. The parser accepts what the specification allows and nothing
//! else; it doesn't panic on any input.

#[cfg(any(test, feature = "testing"))]
pub mod client;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::{Connect, Filters, Packet, Publish, Subscribe, Unsubscribe, Will, frame, packet};
pub use encode::{Ack, Code, PublishHead, ack, connack, suback_head};

/// Packet types (section 2.2.1), as they stand in the upper half of the first byte.
pub mod kind {
    pub const CONNECT: u8 = 1;
    pub const CONNACK: u8 = 2;
    pub const PUBLISH: u8 = 3;
    pub const PUBACK: u8 = 4;
    pub const PUBREC: u8 = 5;
    pub const PUBREL: u8 = 6;
    pub const PUBCOMP: u8 = 7;
    pub const SUBSCRIBE: u8 = 8;
    pub const SUBACK: u8 = 9;
    pub const UNSUBSCRIBE: u8 = 10;
    pub const UNSUBACK: u8 = 11;
    pub const PINGREQ: u8 = 12;
    pub const PINGRESP: u8 = 13;
    pub const DISCONNECT: u8 = 14;
}

/// Quality of service: 0, 1 or 2, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Qos {
    #[default]
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl Qos {
    pub const fn from_number(n: u8) -> Option<Self> {
        match n {
            0 => Some(Qos::AtMostOnce),
            1 => Some(Qos::AtLeastOnce),
            2 => Some(Qos::ExactlyOnce),
            _ => None,
        }
    }
}

/// The client broke the protocol: what it did, for the log. The connection is closed (section 4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Where the next packet ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub first: u8,
    /// Bytes of the fixed header, 2 to 5.
    pub head: usize,
    /// Bytes of the whole packet.
    pub total: usize,
}

pub const PINGRESP: [u8; 2] = [kind::PINGRESP << 4, 0];

/// Value of the largest remaining length (section 2.2.3).
pub const MAX_REMAINING: usize = 268_435_455;

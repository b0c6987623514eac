//! Counters since the broker's start.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Clients connected now.
    pub connected: u32,
    /// PUBLISH packets from and to clients.
    pub received: u64,
    pub sent: u64,
    /// QoS 0 messages that a receiver's full queue had no room for.
    pub dropped: u64,
    /// Connections that were accepted; that ended before that.
    pub accepted: u64,
    pub refused: u64,
    /// Sessions discarded because acknowledged messages found no room.
    pub sessions_lost: u64,
}

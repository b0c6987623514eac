//! The application traffic secrets of the handshake that runs at this moment, by way of rustls's key log.

use crate::record::{Secrets, Suite};
use alloc::vec::Vec;
use rustls::KeyLog;
use spin::Mutex;
use zeroize::Zeroizing;

/// Client's and server's secret as rustls logged them.
#[derive(Default)]
pub struct Captured {
    client: Option<Zeroizing<Vec<u8>>>,
    server: Option<Zeroizing<Vec<u8>>>,
}

impl Captured {
    /// Takes over what `newer` has.
    pub fn merge(&mut self, newer: Captured) {
        self.client = newer.client.or(self.client.take());
        self.server = newer.server.or(self.server.take());
    }

    /// For the server: it receives under the client's secret.
    pub fn secrets(&self, suite: Suite) -> Option<Secrets> {
        Secrets::new(suite, self.client.as_deref()?, self.server.as_deref()?)
    }
}

/// One for all connections: the task has one thread, so whatever it holds after a step belongs to the connection that stepped. (The
/// lock is there because rustls wants `Sync`; nobody ever waits for it.)
#[derive(Default)]
pub struct Tap(Mutex<Captured>);

impl Tap {
    pub fn take(&self) -> Captured {
        core::mem::take(&mut self.0.lock())
    }
}

impl core::fmt::Debug for Tap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Tap")
    }
}

impl KeyLog for Tap {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let secret = || Some(Zeroizing::new(secret.to_vec()));
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => self.0.lock().client = secret(),
            "SERVER_TRAFFIC_SECRET_0" => self.0.lock().server = secret(),
            _ => {}
        }
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, "CLIENT_TRAFFIC_SECRET_0" | "SERVER_TRAFFIC_SECRET_0")
    }
}

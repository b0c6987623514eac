//! What the fuzzers run: arbitrary bytes and records, and neighbours in any order, against fresh and established connections.

use crate::handshake::Done;
use crate::record::{Direction, HEADER, Secrets, Session, Suite};
use crate::service::Links;
use crate::testing::{Bench, Pools, config};
use ipc::link::stream::{Down, Identity, ROLE_DEVICE, Reason, Up};
use std::cell::RefCell;
use std::thread_local;
use std::vec;
use std::vec::Vec;

/// Reads a script from `data` and plays it. Panics mean a bug; so do buffers and connections that are left at its end.
pub fn run(data: &[u8]) {
    thread_local!(static BENCH: RefCell<Bench> =
        RefCell::new(Bench::with(config(), Pools { frames: 8, plaintext: 4, ciphertext: 4, outgoing: 8 })));
    BENCH.with_borrow_mut(|bench| {
        let mut script = Script { data };
        let mut peers: [Option<Peer>; 4] = [const { None }; 4];
        while !script.data.is_empty() {
            act(bench, &mut script, &mut peers);
        }
        clean_up(bench);
    });
}

struct Script<'d> {
    data: &'d [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.data.split_off_first().copied().unwrap_or(0)
    }

    /// Up to 255 bytes, now and then repeated to thousands.
    fn bytes(&mut self) -> Vec<u8> {
        let len = (self.byte() as usize).min(self.data.len());
        let bytes = self.data.split_off(..len).unwrap_or(&[]);
        bytes.repeat(if self.byte() == 0 { 40 } else { 1 })
    }
}

/// The client of an established connection, able to seal what no honest client would.
struct Peer {
    conn: u32,
    suite: Suite,
    secrets: Secrets,
    sent: u64,
}

impl Peer {
    /// A record around `inner`, which should be text, content type and padding.
    fn seal(&mut self, mut inner: Vec<u8>) -> Vec<u8> {
        let len = inner.len() + 16;
        let mut record = vec![23, 3, 3, (len >> 8) as u8, len as u8];
        let key = self.secrets.key(self.suite, Direction::Send);
        let tag = key.seal(self.sent, &record[..HEADER], &mut inner).expect("short enough");
        self.sent += 1;
        record.extend(inner);
        record.extend(tag.as_ref());
        record
    }

    fn key_update(&mut self, request: u8) -> Vec<u8> {
        let record = self.seal(vec![24, 0, 0, 1, request, 22]);
        self.secrets.update(self.suite, Direction::Send);
        self.sent = 0;
        record
    }
}

fn act(bench: &mut Bench, script: &mut Script<'_>, peers: &mut [Option<Peer>; 4]) {
    let what = script.byte();
    let slot = (what >> 4 & 3) as usize;
    let newest = bench.wires.keys().copied().filter(|c| *c as usize & 3 == slot).max();
    let open = newest.filter(|c| !bench.wires[c].closed);
    match (what & 15, open) {
        (0 | 1, None) if newest.is_none_or(|c| bench.wires[&c].released) => {
            let conn = newest.map_or(slot as u32, |c| c.wrapping_add(1 << 20));
            bench.open(conn);
            bench.settle();
            if what & 1 == 1 {
                peers[slot] = establish(bench, conn, script.byte());
            }
        }
        (2 | 3, Some(conn)) => receive(bench, conn, &script.bytes()),
        (4..=6, Some(conn)) => {
            if let Some(peer) = peers[slot].as_mut().filter(|p| p.conn == conn) {
                let mut inner = script.bytes();
                inner.push([23, 23, 22, 21, 20, 0, script.byte(), 23][script.byte() as usize & 7]);
                inner.resize(inner.len() + script.byte() as usize % 4, 0);
                let record = peer.seal(inner);
                let (now, later) = record.split_at(script.byte() as usize % record.len());
                receive(bench, conn, now);
                receive(bench, conn, later);
            }
        }
        (7, Some(conn)) => {
            if let Some(peer) = peers[slot].as_mut().filter(|p| p.conn == conn) {
                let record = peer.key_update(script.byte() % 3);
                receive(bench, conn, &record);
            }
        }
        (8, Some(conn)) => bench.fin(conn),
        (9, Some(conn)) => bench.close(conn, Reason::Reset),
        (10, Some(conn)) => bench.send(conn, &script.bytes()),
        (11, Some(conn)) => {
            bench.tell([Down::Finish { conn }, Down::Abort { conn }][script.byte() as usize & 1])
        }
        (12, Some(conn)) => {
            bench.tell([Down::Pause { conn }, Down::Resume { conn }][script.byte() as usize & 1])
        }
        (13, Some(conn)) => {
            let said = if script.byte() & 1 == 0 { Up::Congested { conn } } else { Up::Drained { conn } };
            bench.tcp.send(&said);
            let _ = bench.tcp.flush();
        }
        (14, _) => (bench.tcp_holds, bench.broker_holds) = (what & 64 != 0, what & 128 != 0),
        (15, _) => bench.now += (script.byte() as u64) << 25,
        _ => {}
    }
    bench.settle();
}

fn receive(bench: &mut Bench, conn: u32, bytes: &[u8]) {
    for segment in bytes.chunks(1460) {
        if !bench.wires[&conn].closed && bench.tcp.own.available() > 0 {
            bench.frame(conn, segment);
            bench.settle();
        }
    }
}

/// Skips the handshake of a connection that has just opened.
fn establish(bench: &mut Bench, conn: u32, choice: u8) -> Option<Peer> {
    let (suite, len) = match choice % 3 {
        0 => (Suite::Aes128Gcm, 32),
        1 => (Suite::ChaCha20Poly1305, 32),
        _ => (Suite::Aes256Gcm, 48),
    };
    if bench.wires[&conn].closed || bench.session.own.available() == 0 {
        return None;
    }
    let (up, down) = (vec![1; len], vec![2; len]);
    let mut name = [0; 128];
    name[0] = b'd';
    let identity = Identity { role: ROLE_DEVICE, name_len: 1, port: 0, ip: [0; 4], not_after: 0, name };
    let session = Session::new(suite, Secrets::new(suite, &up, &down)?);
    let done = Done { session, identity: Ok(identity), rest: Vec::new() };
    let index = bench.service.find(conn)?;
    let links = &mut Links { stream: &mut bench.stream, session: &mut bench.session };
    bench.service.established(index, done, links);
    Some(Peer { conn, suite, secrets: Secrets::new(suite, &down, &up)?, sent: 0 })
}

/// Ends everything; nothing may be left.
fn clean_up(bench: &mut Bench) {
    (bench.tcp_holds, bench.broker_holds) = (false, false);
    bench.settle();
    let open: Vec<u32> = bench.wires.iter().filter(|(_, w)| !w.closed).map(|(&c, _)| c).collect();
    for conn in open {
        if !bench.wires[&conn].closed {
            bench.close(conn, Reason::Reset);
            bench.settle();
        }
    }
    bench.assert_clean();
    bench.wires.clear();
    bench.clients.clear();
    while bench.service.refusal().is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn any_script(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            run(&data);
        }
    }
}

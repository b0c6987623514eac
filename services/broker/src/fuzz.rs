//! What the fuzzers run: arbitrary streams, and sessions of well-formed packets whose fields and order are arbitrary. Panics when
//! the broker does, leaks a buffer, blames its neighbour for what a client sent, or leaves a `Closed` unanswered.

use crate::Config;
use crate::codec::{Qos, client, kind};
use crate::testing::{Bench, Memory};
use alloc::vec::Vec;
use ipc::link::stream::{Conn, Reason};
use ipc::testing::HalfMemory;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A broker with small limits, so that scripts come to them.
fn bench(plaintext: u32, outgoing: u32) -> Bench {
    let config = Config {
        connections: 4,
        sessions: 4,
        subscriptions_per_session: 4,
        subscriptions: 8,
        inflight: 2,
        queue_messages: 4,
        retained: 4,
        retained_per_client: 3,
        input_bytes: 2 << 20,
        ..Config::default()
    };
    std::thread_local! {
        static MEMORIES: RefCell<BTreeMap<(u32, u32), Memory>> = const { RefCell::new(BTreeMap::new()) };
    }
    // One memory for all runs: it is never freed.
    let memory = MEMORIES.with_borrow_mut(|memories| {
        *memories.entry((plaintext, outgoing)).or_insert_with(|| Memory::new(&config, plaintext, outgoing))
    });
    memory.halves.iter().for_each(HalfMemory::reset);
    Bench::over(memory, config)
}

/// Every client goes; nothing may be left.
fn end(mut bench: Bench) {
    bench.run();
    let conns: Vec<Conn> = bench.peers.keys().copied().collect();
    for conn in conns {
        bench.drain(conn);
        let peer = bench.peer(conn);
        if !peer.released && !peer.finished && !peer.aborted {
            bench.lose(conn, Reason::Reset);
        }
    }
    bench.run();
    assert!(bench.link.is_up(), "the link was blamed for what a client sent");
    assert_eq!((bench.link.own.lent(), bench.tls.own.lent()), (0, 0), "a buffer leaked");
    assert!(bench.peers.values().all(|p| p.released), "Closed without Released");
    assert_eq!(bench.service.stats().connected, 0);
}

/// Arbitrary bytes as the streams of three connections, cut where the bytes say.
pub fn streams(data: &[u8]) {
    let mut bench = bench(8, 8);
    let mut conns = [bench.open(0, "d", false), bench.open(1, "e", false), bench.open(2, "op", true)];
    let ids = ["d", "e", "x"];
    for (i, conn) in conns.iter().enumerate() {
        if data.first().is_some_and(|b| b >> i & 1 == 1) {
            bench.send(*conn, &client::Connect { id: ids[i], clean: i == 1, ..Default::default() }.bytes());
        }
    }
    let mut rest = data.get(1..).unwrap_or_default();
    while let Some((&how, tail)) = rest.split_first() {
        let (part, after) = tail.split_at(tail.len().min(how as usize & 0x3f));
        let i = how as usize >> 6;
        match conns.get(i) {
            Some(&conn) if bench.peer(conn).released => {
                conns[i] = bench.open(i as u32, ["d", "e", "op"][i], i == 2)
            }
            Some(&conn) if !bench.peer(conn).finished => bench.send(conn, part),
            Some(_) => bench.run(),
            None => bench.run_for(how as u64 & 0x3f),
        }
        if how & 1 == 0 {
            bench.run();
        }
        rest = after;
    }
    end(bench);
}

struct Script<'d>(&'d [u8]);

impl<'d> Script<'d> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.byte() as usize % of.len()]
    }

    fn qos(&mut self) -> Qos {
        self.pick(&[Qos::AtMostOnce, Qos::AtLeastOnce])
    }

    fn id(&mut self) -> u16 {
        self.pick(&[1, 2, 3, 4, 0, u16::MAX])
    }

    fn payload(&mut self) -> &'static [u8] {
        const BYTES: [u8; 5000] = [b'x'; 5000];
        &BYTES[..self.pick(&[0, 1, 64, 2040, 2048, 5000])]
    }

    fn packet(&mut self, name: &str) -> Vec<u8> {
        const TOPICS: [&str; 6] =
            ["devices/d/a", "devices/d/a/b", "devices/e/a", "devices//", "other", "$SYS/x"];
        const FILTERS: [&str; 8] = [
            "devices/d/#",
            "devices/+/a",
            "devices/d/a",
            "#",
            "+/+/+",
            "devices/e/#",
            "$SYS/#",
            "devices/#/a",
        ];
        match self.byte() % 8 {
            0 => {
                let flags = self.byte();
                let topic = self.pick(&TOPICS);
                let will = (topic, self.payload(), self.qos(), flags & 4 == 4);
                let id = if flags & 8 == 8 { self.pick(&["", "d", "e", "free"]) } else { name };
                client::Connect {
                    id,
                    clean: flags & 1 == 1,
                    keep_alive: (flags >> 4) as u16,
                    will: (flags & 2 == 2).then_some(will),
                    ..client::Connect::default()
                }
                .bytes()
            }
            1 | 2 => {
                let (topic, payload, qos) = (self.pick(&TOPICS), self.payload(), self.qos());
                client::publish(topic, payload, qos, self.id(), self.byte() & 1 == 1, self.byte() & 1 == 1)
            }
            3 => {
                let filters: Vec<_> =
                    (0..self.byte() % 4).map(|_| (self.pick(&FILTERS), self.byte() & 1)).collect();
                client::subscribe(self.id(), &filters)
            }
            4 => {
                let filters: Vec<_> = (0..self.byte() % 4).map(|_| self.pick(&FILTERS)).collect();
                client::unsubscribe(self.id(), &filters)
            }
            5 => client::acknowledge(
                self.pick(&[kind::PUBACK, kind::PUBACK, kind::PUBREC, kind::PUBREL]),
                self.id(),
            ),
            6 => client::PINGREQ.to_vec(),
            _ => client::DISCONNECT.to_vec(),
        }
    }
}

/// Clients that mostly keep to the protocol: they come, go, take over, fall silent, read slowly; tls restarts.
pub fn sessions(data: &[u8]) {
    const NAMES: [&str; 4] = ["d", "e", "op", "d"];
    let mut bench = bench(8, 6);
    let mut script = Script(data);
    let mut conns: [Option<Conn>; 4] = [None; 4];
    while !script.0.is_empty() {
        let what = script.byte();
        let slot = what as usize >> 6;
        let open = conns[slot].filter(|&conn| !bench.peer(conn).released);
        match (what & 15, open) {
            (_, None) => {
                let conn = bench.open(slot as u32, NAMES[slot], slot == 2);
                conns[slot] = Some(conn);
                if what & 1 == 1 {
                    let clean = what & 2 == 2;
                    bench.send(
                        conn,
                        &client::Connect { id: NAMES[slot], clean, ..Default::default() }.bytes(),
                    );
                }
            }
            (0, Some(conn)) if !bench.peer(conn).finished && !bench.peer(conn).aborted => {
                bench.lose(conn, script.pick(&[Reason::Reset, Reason::Finished, Reason::Timeout]));
                bench.run();
            }
            (1, Some(conn)) => bench.peer(conn).keeps = true,
            (2, Some(conn)) => bench.drain(conn),
            (3, Some(conn)) if !bench.peer(conn).finished && !bench.peer(conn).aborted => {
                bench.congest(conn, script.byte() & 1 == 1)
            }
            (4, _) => bench.run_for(script.byte() as u64 * 100),
            (5, _) if script.byte() == 7 => {
                bench.restart_tls();
                conns = [None; 4];
            }
            (_, Some(conn)) if !bench.peer(conn).finished && !bench.peer(conn).aborted => {
                let packet = script.packet(NAMES[slot]);
                bench.send(conn, &packet);
            }
            _ => {}
        }
        if what & 16 == 0 {
            bench.run();
        }
    }
    end(bench);
}

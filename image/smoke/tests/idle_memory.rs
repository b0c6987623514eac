//! Bytes that an idle client costs in tcp, tls and the broker together: rows of tables, and what the broker's allocator gives.
//! `make bench` prints them.

use broker::Config;
use broker::codec::client::{self, Connect};
use broker::testing::Bench;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

/// Bytes now, rounded up as an allocator with 16-byte grains and 8 bytes of its own would.
static USED: AtomicUsize = AtomicUsize::new(0);

fn cost(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16)
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(cost(layout), Relaxed);
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(cost(layout), Relaxed);
        // SAFETY: by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CLIENTS: u32 = 10_000;

/// Bytes a client, when 10 000 of them have connected with `connect` and subscribed to `filter`, and two keep-alive
/// intervals have passed; then what is left when all have gone.
fn idle(filter: &str, clean: bool) -> (usize, usize) {
    let config = Config {
        connections: CLIENTS,
        sessions: CLIENTS,
        subscriptions: 2 * CLIENTS,
        sys_interval_s: 0,
        ..Config::default()
    };
    let mut b = Bench::new(config);
    let before = USED.load(Relaxed);
    for slot in 0..CLIENTS {
        let id = format!("dev-{slot:05}");
        let conn = b.open(slot, &id, false);
        b.send(conn, &Connect { id: &id, clean, ..Connect::default() }.bytes());
        b.send(conn, &client::subscribe(1, &[(&filter.replace("{id}", &id), 1)]));
        b.run();
        b.peers.clear();
        b.events();
    }
    for _ in 0..4 {
        b.now_ns += 45_000_000_000;
        for slot in 0..CLIENTS {
            b.send(slot | (slot + 1) << 20, &client::PINGREQ);
            if slot % 64 == 63 {
                b.run();
                b.peers.clear();
            }
        }
        b.run();
    }
    b.peers.clear();
    assert_eq!(b.service.stats().connected, CLIENTS);
    let each = (USED.load(Relaxed) - before) / CLIENTS as usize;
    for slot in 0..CLIENTS {
        b.send(slot | (slot + 1) << 20, &client::DISCONNECT);
        b.run();
        b.peers.clear();
        b.events();
    }
    assert_eq!(b.service.stats().connected, 0);
    (each, (USED.load(Relaxed) - before) / CLIENTS as usize)
}

#[test]
fn an_idle_client_costs_little() {
    let (tcp, tls) = (tcp::table::IDLE_BYTES, tls::IDLE_BYTES);
    for (filter, clean, most) in
        [("devices/{id}/#", true, 240), ("devices/{id}/#", false, 240), ("devices/{id}/cmd", true, 300)]
    {
        let (broker, left) = idle(filter, clean);
        let session = if clean { "clean" } else { "kept" };
        println!(
            "idle connection, {session} session, subscribed to {filter}: tcp {tcp} + tls {tls} + broker {broker} = {} bytes \
             ({left} left afterwards)",
            tcp + tls + broker
        );
        assert!(broker <= most && tcp + tls + broker <= 512);
    }
}

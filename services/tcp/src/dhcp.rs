//! DHCPv4 client (RFC 2131): a state machine over times and messages. Formats are smoltcp's.

use crate::packet::{BROADCAST, Mac, is_host};
use crate::random::Random;
use core::net::Ipv4Addr;
use smoltcp::wire::{DhcpMessageType as Kind, DhcpPacket, DhcpRepr, EthernetAddress};

const SECOND: u64 = 1_000_000_000;
/// Requests for one offer before the search starts again.
const REQUESTS: u32 = 4;
/// Shortest lease that is honoured, and the one of a server that names none; seconds.
const LEASE_MIN: u32 = 60;
const LEASE_DEFAULT: u32 = 3600;

/// What a server offered or gave, and how to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer {
    ip: u32,
    server: Ipv4Addr,
    server_mac: Mac,
}

/// Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    offer: Offer,
    renew: u64,
    rebind: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Searching,
    Requesting(Offer),
    /// Bound, renewing or rebinding, as the time says.
    Bound(Lease),
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    Leased { ip: u32, seconds: u32 },
    Lost,
}

/// Where a message goes. Without an address of ours everything is broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    pub mac: Mac,
    pub ip: Ipv4Addr,
}

#[derive(Debug)]
pub struct Dhcp {
    state: State,
    transaction: u32,
    /// Messages sent in this state.
    tries: u32,
    /// When the next message is due, ns.
    due: u64,
    started: u64,
}

impl Dhcp {
    pub fn new(transaction: u32) -> Self {
        Dhcp { state: State::Searching, transaction, tries: 0, due: 0, started: 0 }
    }

    /// When to call [`Dhcp::poll`], ns.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Lets time pass. When a message is due it is written to `into` (at least 400 bytes); where it goes, and its length.
    pub fn poll(
        &mut self,
        now: u64,
        mac: Mac,
        random: &mut Random,
        into: &mut [u8],
    ) -> (Change, Option<(To, usize)>) {
        if now < self.due {
            return (Change::None, None);
        }
        let mut change = Change::None;
        match self.state {
            State::Bound(lease) if now >= lease.end => {
                self.enter(State::Searching, now, random);
                change = Change::Lost;
            }
            State::Requesting(_) if self.tries >= REQUESTS => self.enter(State::Searching, now, random),
            _ => {}
        }
        if self.tries == 0 {
            self.started = now;
        }
        self.tries += 1;
        self.due = now + self.patience(now, random);
        let message = self.write(now, mac, into);
        (change, message)
    }

    fn enter(&mut self, state: State, due: u64, random: &mut Random) {
        if state == State::Searching {
            self.transaction = random.next_u32();
        }
        (self.state, self.tries, self.due) = (state, 0, due);
    }

    /// How long to wait for an answer to the message that goes out now (RFC 2131 4.1, 4.4.5).
    fn patience(&self, now: u64, random: &mut Random) -> u64 {
        let jitter = random.next_u64() % SECOND;
        match self.state {
            State::Searching | State::Requesting(_) => (SECOND << self.tries.clamp(1, 6)) / 2 + jitter,
            State::Bound(lease) => {
                let next = if now < lease.rebind { lease.rebind } else { lease.end };
                ((next - now) / 2).max(LEASE_MIN as u64 * SECOND).min(next - now)
            }
        }
    }

    fn write(&self, now: u64, mac: Mac, into: &mut [u8]) -> Option<(To, usize)> {
        let everybody = To { mac: BROADCAST, ip: Ipv4Addr::BROADCAST };
        let blank = DhcpRepr {
            message_type: Kind::Discover,
            transaction_id: self.transaction,
            secs: ((now - self.started) / SECOND).min(0xffff) as u16,
            client_hardware_address: EthernetAddress(mac),
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            broadcast: false,
            requested_ip: None,
            client_identifier: Some(EthernetAddress(mac)),
            server_identifier: None,
            parameter_request_list: Some(&[1, 51, 54, 58, 59]),
            dns_servers: None,
            max_size: Some(1500),
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        };
        let (to, repr) = match self.state {
            State::Searching => (everybody, DhcpRepr { broadcast: true, ..blank }),
            State::Requesting(offer) => {
                let request = DhcpRepr {
                    message_type: Kind::Request,
                    broadcast: true,
                    requested_ip: Some(Ipv4Addr::from_bits(offer.ip)),
                    server_identifier: Some(offer.server),
                    ..blank
                };
                (everybody, request)
            }
            State::Bound(Lease { offer, rebind, .. }) => {
                let server = To { mac: offer.server_mac, ip: offer.server };
                let request = DhcpRepr {
                    message_type: Kind::Request,
                    client_ip: Ipv4Addr::from_bits(offer.ip),
                    ..blank
                };
                (if now < rebind { server } else { everybody }, request)
            }
        };
        let len = repr.buffer_len();
        repr.emit(&mut DhcpPacket::new_unchecked(into.get_mut(..len)?)).ok()?;
        Some((to, len))
    }

    /// A message from a server, whose frame came from `from`.
    pub fn receive(&mut self, now: u64, mac: Mac, from: Mac, message: &[u8], random: &mut Random) -> Change {
        let Ok(packet) = DhcpPacket::new_checked(message) else { return Change::None };
        let Ok(reply) = DhcpRepr::parse(&packet) else { return Change::None };
        if reply.transaction_id != self.transaction || reply.client_hardware_address != EthernetAddress(mac) {
            return Change::None;
        }
        let (ip, server) = (reply.your_ip.to_bits(), reply.server_identifier);
        match (self.state, reply.message_type, server) {
            (State::Searching, Kind::Offer, Some(server)) if self.tries > 0 && is_host(ip) => {
                self.enter(State::Requesting(Offer { ip, server, server_mac: from }), now, random);
                Change::None
            }
            (State::Requesting(offer), Kind::Ack, Some(server))
                if offer.server == server && offer.ip == ip =>
            {
                self.bind(Offer { server_mac: from, ..offer }, &reply, now)
            }
            (State::Bound(lease), Kind::Ack, server) if lease.offer.ip == ip && now >= lease.renew => {
                let server = server.unwrap_or(lease.offer.server);
                self.bind(Offer { ip, server, server_mac: from }, &reply, now)
            }
            (State::Requesting(offer), Kind::Nak, Some(server)) if offer.server == server => {
                // Not at once, or a server that refuses everything would keep us busy.
                self.enter(State::Searching, now + SECOND, random);
                Change::None
            }
            (State::Bound(lease), Kind::Nak, Some(server))
                if now >= lease.renew && lease.offer.server == server =>
            {
                self.enter(State::Searching, now + SECOND, random);
                Change::Lost
            }
            _ => Change::None,
        }
    }

    fn bind(&mut self, offer: Offer, reply: &DhcpRepr, now: u64) -> Change {
        let seconds = reply.lease_duration.unwrap_or(LEASE_DEFAULT).max(LEASE_MIN);
        let rebind = reply.rebind_duration.unwrap_or(seconds / 8 * 7).clamp(LEASE_MIN / 2, seconds);
        let renew = reply.renew_duration.unwrap_or(seconds / 2).clamp(LEASE_MIN / 4, rebind);
        let at = |seconds: u32| now + seconds as u64 * SECOND;
        let lease = Lease { offer, renew: at(renew), rebind: at(rebind), end: at(seconds) };
        (self.state, self.tries, self.due) = (State::Bound(lease), 0, lease.renew);
        Change::Leased { ip: offer.ip, seconds }
    }
}

//! ARP, ICMP echo and DHCP, in smoltcp's formats and against smoltcp's own idea of them.

use crate::packet::BROADCAST;
use crate::peer::*;
use crate::rig::{IP, MAC, Rig, Sizes, config};
use crate::{Address, Config, Event};
use core::net::Ipv4Addr;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::*;

const THEIR_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
const SECOND: u64 = 1_000_000_000;

fn caps() -> ChecksumCapabilities {
    ChecksumCapabilities::default()
}

fn ethernet(to: [u8; 6], kind: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + payload.len()];
    let repr = EthernetRepr { src_addr: THEIR_MAC, dst_addr: EthernetAddress(to), ethertype: kind };
    repr.emit(&mut EthernetFrame::new_unchecked(&mut frame));
    frame[14..].copy_from_slice(payload);
    frame
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let repr = Ipv4Repr {
        src_addr: from,
        dst_addr: to,
        next_header: protocol,
        payload_len: payload.len(),
        hop_limit: 64,
    };
    let mut packet = vec![0; 20 + payload.len()];
    packet[20..].copy_from_slice(payload);
    repr.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &caps());
    packet
}

fn arp_request(whom: Ipv4Addr) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: THEIR_MAC,
        source_protocol_addr: Ipv4Addr::new(10, 0, 0, 9),
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: whom,
    };
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut ArpPacket::new_unchecked(&mut packet));
    ethernet(BROADCAST, EthernetProtocol::Arp, &packet)
}

fn read_arp(frame: &[u8]) -> Option<ArpRepr> {
    let eth = EthernetFrame::new_checked(frame).ok()?;
    (eth.ethertype() == EthernetProtocol::Arp)
        .then(|| ArpRepr::parse(&ArpPacket::new_checked(eth.payload()).unwrap()).unwrap())
}

#[test]
fn arp_is_answered_for_our_address_only() {
    let mut rig = Rig::new(config(), Sizes::default());
    rig.exchange(&[]);
    assert!(rig.exchange(&[arp_request(Ipv4Addr::new(10, 0, 0, 77))]).is_empty());
    let out = rig.exchange(&[arp_request(IP.into())]);
    assert_eq!(out[0].len(), 60);
    let Some(ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_hardware_addr,
        ..
    }) = read_arp(&out[0])
    else {
        panic!()
    };
    assert_eq!((operation, source_hardware_addr), (ArpOperation::Reply, EthernetAddress(MAC)));
    assert_eq!((source_protocol_addr, target_hardware_addr), (Ipv4Addr::from(IP), THEIR_MAC));
}

#[test]
fn comes_up_with_a_gratuitous_arp() {
    let mut rig = Rig::new(config(), Sizes::default());
    let first = rig.exchange(&[]);
    rig.restart_nic();
    rig.exchange(&[]);
    let second = rig.exchange(&[]);
    for out in [first, second] {
        let arps: Vec<_> = out.iter().filter_map(|f| read_arp(f)).collect();
        let [ArpRepr::EthernetIpv4 { source_protocol_addr, target_protocol_addr, .. }] = arps[..] else {
            panic!("{arps:?}")
        };
        assert_eq!(source_protocol_addr, target_protocol_addr);
    }
}

#[test]
fn echo_is_answered_within_a_budget() {
    let mut rig = Rig::new(config(), Sizes::default());
    rig.exchange(&[]);
    let request = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 8, data: b"are you there?" };
    let mut icmp = vec![0; request.buffer_len()];
    request.emit(&mut Icmpv4Packet::new_unchecked(&mut icmp), &caps());
    let ping = ethernet(
        MAC,
        EthernetProtocol::Ipv4,
        &ipv4([10, 0, 0, 9].into(), IP.into(), IpProtocol::Icmp, &icmp),
    );
    let out = rig.exchange(std::slice::from_ref(&ping));
    let eth = EthernetFrame::new_checked(&out[0]).unwrap();
    let ip = Ipv4Packet::new_checked(eth.payload()).unwrap();
    assert!(ip.verify_checksum());
    let reply = Icmpv4Repr::parse(&Icmpv4Packet::new_checked(ip.payload()).unwrap(), &caps()).unwrap();
    assert_eq!(reply, Icmpv4Repr::EchoReply { ident: 7, seq_no: 8, data: b"are you there?" });
    let answered: usize = (0..500).map(|_| rig.exchange(std::slice::from_ref(&ping)).len()).sum();
    assert!((49..=150).contains(&answered), "{answered}");
    let mut broken = ping.clone();
    *broken.last_mut().unwrap() ^= 1;
    rig.now += 2 * SECOND;
    assert!(rig.exchange(&[broken]).is_empty());
}

/// A DHCP server that answers one message.
fn serve(
    rig: &mut Rig,
    request: &[u8],
    answer: impl FnOnce(&DhcpRepr) -> Option<(DhcpMessageType, Ipv4Addr, u32)>,
) {
    let eth = EthernetFrame::new_checked(request).unwrap();
    let ip = Ipv4Packet::new_checked(eth.payload()).unwrap();
    let udp = UdpPacket::new_checked(ip.payload()).unwrap();
    UdpRepr::parse(&udp, &ip.src_addr().into(), &ip.dst_addr().into(), &caps()).expect("a good checksum");
    let packet = DhcpPacket::new_checked(udp.payload()).unwrap();
    let message = DhcpRepr::parse(&packet).unwrap();
    let Some((kind, yours, lease)) = answer(&message) else { return };
    let server = Ipv4Addr::new(10, 0, 0, 254);
    let reply = DhcpRepr {
        message_type: kind,
        your_ip: yours,
        client_ip: Ipv4Addr::UNSPECIFIED,
        server_identifier: Some(server),
        lease_duration: Some(lease),
        requested_ip: None,
        client_identifier: None,
        parameter_request_list: None,
        max_size: None,
        ..message.clone()
    };
    let mut payload = vec![0; reply.buffer_len()];
    reply.emit(&mut DhcpPacket::new_unchecked(&mut payload)).unwrap();
    let mut datagram = vec![0; 8 + payload.len()];
    let repr = UdpRepr { src_port: 67, dst_port: 68 };
    repr.emit(
        &mut UdpPacket::new_unchecked(&mut datagram),
        &server.into(),
        &yours.into(),
        payload.len(),
        |p| p.copy_from_slice(&payload),
        &caps(),
    );
    let frame = ethernet(MAC, EthernetProtocol::Ipv4, &ipv4(server, yours, IpProtocol::Udp, &datagram));
    rig.nic.deliver(&frame);
    rig.drive();
}

fn dhcp_rig() -> Rig {
    Rig::new(Config { address: Address::Dhcp, ..config() }, Sizes::default())
}

fn is_dhcp(frame: &[u8]) -> bool {
    frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == 17
}

/// Lets time pass until a DHCP message comes out; where it went, and the message.
fn next_dhcp(rig: &mut Rig, within: u64) -> Option<Vec<u8>> {
    let end = rig.now + within * SECOND;
    loop {
        if let Some(frame) = rig.exchange(&[]).into_iter().find(|f| is_dhcp(f)) {
            return Some(frame);
        }
        if rig.now >= end {
            return None;
        }
        rig.now = rig.deadline.clamp(rig.now + 1_000_000, end);
    }
}

fn lease(rig: &mut Rig, seconds: u32) {
    let address = Ipv4Addr::from(IP);
    let discover = next_dhcp(rig, 5).expect("a discover");
    serve(rig, &discover, |m| {
        assert_eq!((m.message_type, m.broadcast), (DhcpMessageType::Discover, true));
        Some((DhcpMessageType::Offer, address, seconds))
    });
    let request = next_dhcp(rig, 5).expect("a request");
    serve(rig, &request, |m| {
        assert_eq!((m.message_type, m.requested_ip), (DhcpMessageType::Request, Some(address)));
        assert_eq!(m.server_identifier, Some(Ipv4Addr::new(10, 0, 0, 254)));
        Some((DhcpMessageType::Ack, address, seconds))
    });
}

#[test]
fn dhcp_lease_renewal_and_rebinding() {
    let mut rig = dhcp_rig();
    assert!(!rig.events.iter().any(|e| matches!(e, Event::Ready { .. })), "not without an address");
    lease(&mut rig, 1000);
    assert!(rig.events.contains(&Event::Leased { ip: u32::from_be_bytes(IP), seconds: 1000 }));
    rig.settle();
    assert!(rig.events.iter().any(|e| matches!(e, Event::Ready { .. })));
    Peer::connected(&mut rig, 1);
    let bound = rig.now;
    let renew = next_dhcp(&mut rig, 600).expect("a renewal");
    assert!((495..=505).contains(&((rig.now - bound) / SECOND)), "at half time");
    assert_eq!(renew[..6], THEIR_MAC.0, "unicast to the server");
    serve(&mut rig, &renew, |m| {
        assert_eq!(
            (m.message_type, m.client_ip, m.requested_ip),
            (DhcpMessageType::Request, IP.into(), None)
        );
        Some((DhcpMessageType::Ack, IP.into(), 1000))
    });
    let bound = rig.now;
    let mut broadcasts = 0;
    while let Some(frame) = next_dhcp(&mut rig, 600).filter(|_| rig.now < bound + 999 * SECOND) {
        let late = rig.now - bound >= 875 * SECOND;
        assert_eq!(frame[..6] == BROADCAST, late, "broadcast when rebinding");
        broadcasts += late as u32;
    }
    assert!(broadcasts >= 1);
    rig.now = bound + 1001 * SECOND;
    rig.exchange(&[]);
    assert!(rig.events.contains(&Event::LeaseLost));
    assert_eq!((rig.tls.live(), rig.service.connections()), (0, 0), "without an address no connections");
    lease(&mut rig, 1000);
    Peer::connected(&mut rig, 1);
    assert_eq!(rig.tls.live(), 1);
}

#[test]
fn dhcp_without_a_server_backs_off() {
    let mut rig = dhcp_rig();
    let sent = (0..).map_while(|_| next_dhcp(&mut rig, 200).filter(|_| rig.now < 600 * SECOND));
    let sent = sent.count();
    assert!((15..40).contains(&sent), "{sent} messages in ten minutes");
}

#[test]
fn dhcp_refuses_strange_answers() {
    for strange in 0..4 {
        let mut rig = dhcp_rig();
        let discover = next_dhcp(&mut rig, 5).unwrap();
        let mut broken = discover.clone();
        match strange {
            // Another transaction, another client: what the server copies into its answer.
            0 => broken[46] ^= 1,
            1 => broken[70] ^= 1,
            _ => {}
        }
        if strange < 2 {
            broken[40..42].fill(0);
        }
        let (kind, ip) = match strange {
            2 => (DhcpMessageType::Ack, Ipv4Addr::from(IP)),
            3 => (DhcpMessageType::Offer, Ipv4Addr::new(127, 0, 0, 1)),
            _ => (DhcpMessageType::Offer, Ipv4Addr::from(IP)),
        };
        serve(&mut rig, &broken, |_| Some((kind, ip, 100)));
        let next = next_dhcp(&mut rig, 10).unwrap();
        serve(&mut rig, &next, |m| {
            assert_eq!(m.message_type, DhcpMessageType::Discover, "case {strange}");
            None
        });
    }
}

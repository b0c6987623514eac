//! What isn't TCP: ARP, ICMP echo, and the way of DHCP's messages. Rare, so frames are looked at as a whole and in
//! smoltcp's formats.
//!
//! There is no address resolution: we only ever answer, and answers go to where the frame came from (decision 0060).

use crate::dhcp::{Change, To};
use crate::packet::{BROADCAST, ETHERNET, IPV4, Mac, Packet};
use crate::service::{Event, Io, Service};
use core::net::Ipv4Addr;
use ipc::abi::NEVER;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::*;

const UDP: usize = 8;
const DHCP_CLIENT: u16 = 68;
const DHCP_SERVER: u16 = 67;
/// Largest DHCP message that we write.
const DHCP_MAX: usize = 512;

fn checksums() -> ChecksumCapabilities {
    ChecksumCapabilities::default()
}

impl Service {
    /// A frame that isn't a TCP segment, of which `scratch[..len]` is a copy.
    pub(crate) fn other_packet(&mut self, io: &mut Io, packet: Packet, len: usize) {
        let scratch = core::mem::take(&mut self.scratch);
        let from: Mac = scratch[6..12].try_into().expect("six bytes");
        match packet {
            Packet::Arp => self.arp(io, &scratch[ETHERNET..len]),
            Packet::Icmp { end } => self.icmp(io, from, &scratch[ETHERNET..end]),
            Packet::Udp { end } => self.udp(io, from, &scratch[ETHERNET..end]),
            Packet::Tcp(_) | Packet::Dropped(_) => self.counters.foreign += 1,
        }
        self.scratch = scratch;
    }

    /// Answers requests for our address.
    fn arp(&mut self, io: &mut Io, packet: &[u8]) {
        let Ok(request) = ArpPacket::new_checked(packet).and_then(|p| ArpRepr::parse(&p)) else { return };
        let ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        } = request
        else {
            return;
        };
        if self.host.ip == 0
            || target_protocol_addr.to_bits() != self.host.ip
            || !source_hardware_addr.is_unicast()
        {
            return;
        }
        self.send_arp(io, ArpOperation::Reply, source_hardware_addr, source_protocol_addr);
    }

    /// Gratuitous ARP (RFC 5227 3): neighbours and switches learn where we are.
    pub(crate) fn announce(&mut self, io: &mut Io) {
        if self.host.ip != 0 {
            let ourselves = Ipv4Addr::from_bits(self.host.ip);
            self.send_arp(io, ArpOperation::Request, EthernetAddress(BROADCAST), ourselves);
        }
    }

    fn send_arp(&mut self, io: &mut Io, operation: ArpOperation, to: EthernetAddress, whom: Ipv4Addr) {
        let arp = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.host.mac),
            source_protocol_addr: Ipv4Addr::from_bits(self.host.ip),
            target_hardware_addr: to,
            target_protocol_addr: whom,
        };
        self.send_frame(io, |service, bytes| {
            service.ethernet(bytes, to.0, EthernetProtocol::Arp);
            arp.emit(&mut ArpPacket::new_unchecked(&mut bytes[ETHERNET..]));
            // The shortest Ethernet frame, without CRC.
            bytes[ETHERNET + arp.buffer_len()..60].fill(0);
            60
        });
    }

    fn ethernet(&self, bytes: &mut [u8], to: Mac, kind: EthernetProtocol) {
        let repr = EthernetRepr {
            src_addr: EthernetAddress(self.host.mac),
            dst_addr: EthernetAddress(to),
            ethertype: kind,
        };
        repr.emit(&mut EthernetFrame::new_unchecked(bytes));
    }

    /// Answers an echo request, within a budget.
    fn icmp(&mut self, io: &mut Io, from: Mac, datagram: &[u8]) {
        let Ok(ip) = Ipv4Packet::new_checked(datagram) else { return };
        let Ok(packet) = Icmpv4Packet::new_checked(ip.payload()) else { return };
        let Ok(Icmpv4Repr::EchoRequest { ident, seq_no, data }) = Icmpv4Repr::parse(&packet, &checksums())
        else {
            return;
        };
        if !self.echoes.allow(io.now, &mut self.random) {
            return;
        }
        let reply = Icmpv4Repr::EchoReply { ident, seq_no, data };
        let repr = Ipv4Repr {
            src_addr: ip.dst_addr(),
            dst_addr: ip.src_addr(),
            next_header: IpProtocol::Icmp,
            payload_len: reply.buffer_len(),
            hop_limit: 64,
        };
        self.send_frame(io, |service, bytes| {
            service.ethernet(bytes, from, EthernetProtocol::Ipv4);
            repr.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[ETHERNET..]), &checksums());
            let at = ETHERNET + IPV4;
            reply.emit(
                &mut Icmpv4Packet::new_unchecked(&mut bytes[at..at + reply.buffer_len()]),
                &checksums(),
            );
            at + reply.buffer_len()
        });
    }

    fn udp(&mut self, io: &mut Io, from: Mac, datagram: &[u8]) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let Ok(ip) = Ipv4Packet::new_checked(datagram) else { return };
        let Ok(packet) = UdpPacket::new_checked(ip.payload()) else { return };
        let Ok(udp) = UdpRepr::parse(&packet, &ip.src_addr().into(), &ip.dst_addr().into(), &checksums())
        else {
            return;
        };
        if (udp.src_port, udp.dst_port) == (DHCP_SERVER, DHCP_CLIENT) {
            let change = dhcp.receive(io.now, self.host.mac, from, packet.payload(), &mut self.random);
            self.address_changed(io, change);
        }
    }

    /// DHCP's part of [`Service::expire`].
    pub(crate) fn expire_network(&mut self, io: &mut Io) {
        if !self.can_transmit(io) {
            return;
        }
        let Some(dhcp) = self.dhcp.as_mut().filter(|d| d.due() <= io.now) else { return };
        let mut message = [0; DHCP_MAX];
        let (change, out) = dhcp.poll(io.now, self.host.mac, &mut self.random, &mut message);
        self.address_changed(io, change);
        if let Some((to, len)) = out {
            self.send_dhcp(io, to, &message[..len]);
        }
    }

    /// When DHCP is due, ns.
    pub(crate) fn network_deadline(&self, io: &Io) -> u64 {
        self.dhcp.as_ref().filter(|_| self.can_transmit(io)).map_or(NEVER, |d| d.due())
    }

    fn send_dhcp(&mut self, io: &mut Io, to: To, message: &[u8]) {
        let (from, to_ip) = (Ipv4Addr::from_bits(self.host.ip), to.ip);
        let udp = UdpRepr { src_port: DHCP_CLIENT, dst_port: DHCP_SERVER };
        let ip = Ipv4Repr {
            src_addr: from,
            dst_addr: to_ip,
            next_header: IpProtocol::Udp,
            payload_len: UDP + message.len(),
            hop_limit: 64,
        };
        self.send_frame(io, |service, bytes| {
            service.ethernet(bytes, to.mac, EthernetProtocol::Ipv4);
            let at = ETHERNET + IPV4;
            let end = at + UDP + message.len();
            ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[ETHERNET..end]), &checksums());
            let mut packet = UdpPacket::new_unchecked(&mut bytes[at..end]);
            let addresses = (from.into(), to_ip.into());
            udp.emit(
                &mut packet,
                &addresses.0,
                &addresses.1,
                message.len(),
                |p| p.copy_from_slice(message),
                &checksums(),
            );
            end
        });
    }

    fn address_changed(&mut self, io: &mut Io, change: Change) {
        match change {
            Change::None => {}
            Change::Leased { ip, .. } if ip == self.host.ip => {}
            Change::Leased { ip, seconds } => {
                self.host.ip = ip;
                self.log(Event::Leased { ip, seconds });
                self.announce(io);
            }
            Change::Lost => {
                // With their address gone the connections can't go on. Their peers find out by themselves.
                self.close_all();
                self.sweep(io);
                self.host.ip = 0;
                self.log(Event::LeaseLost);
            }
        }
    }
}

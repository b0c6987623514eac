//! What a received frame may be: strict checks of Ethernet, IPv4 and TCP headers, on a private copy.
//!
//! IPv4 is taken as a host needs it that only talks to TCP clients: no options, no fragments (RFC 791), a right header
//! checksum, unicast sources. Anything else is dropped without an answer.

use crate::checksum::Sum;

pub type Mac = [u8; 6];
pub const BROADCAST: Mac = [0xff; 6];

pub const ETHERNET: usize = 14;
pub const IPV4: usize = 20;
/// Ethernet, IPv4 and TCP without options.
pub const HEADERS: usize = ETHERNET + IPV4 + 20;
/// Ethernet, IPv4 and the longest TCP header, rounded up: what [`parse`] reads.
pub const MAX_HEADERS: usize = 96;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

const ARP_TYPE: u16 = 0x0806;
const IPV4_TYPE: u16 = 0x0800;
const ICMP_PROTOCOL: u8 = 1;
pub const TCP_PROTOCOL: u8 = 6;
const UDP_PROTOCOL: u8 = 17;

/// Who we are.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub mac: Mac,
    /// 0: no address yet.
    pub ip: u32,
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    Tcp(Segment),
    Arp,
    /// Of the frame, the bytes `ETHERNET..end` are the IPv4 datagram.
    Icmp {
        end: usize,
    },
    Udp {
        end: usize,
    },
    Dropped(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Not for us, or of a kind that we don't take part in.
    Foreign,
    /// Too short, lengths that contradict each other, a wrong header checksum, an impossible address.
    Malformed,
    /// IPv4 options or fragments.
    Unsupported,
}

/// A TCP segment's header, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub mac: Mac,
    pub ip: u32,
    pub port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// Where options and payload lie in the frame.
    pub options_len: u8,
    pub payload_at: u16,
    pub len: u16,
}

impl Segment {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sequence numbers that it takes, without SYN.
    pub fn extent(&self) -> u32 {
        self.len as u32 + self.has(FIN) as u32
    }
}

type Head = [u8; MAX_HEADERS];

const fn be16(h: &Head, at: usize) -> u16 {
    u16::from_be_bytes([h[at], h[at + 1]])
}

const fn be32(h: &Head, at: usize) -> u32 {
    u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])
}

fn mac_at(h: &Head, at: usize) -> Mac {
    [h[at], h[at + 1], h[at + 2], h[at + 3], h[at + 4], h[at + 5]]
}

/// Neither 0/8, loopback, multicast, reserved nor broadcast.
pub fn is_host(ip: u32) -> bool {
    !matches!(ip >> 24, 0 | 127 | 224..)
}

/// Classifies a frame of `len` bytes by its first bytes (those of `head` beyond `len` don't count). The TCP checksum is the
/// caller's business.
pub fn parse(head: &Head, len: usize, host: &Host) -> Packet {
    if len < ETHERNET {
        return Packet::Dropped(Why::Malformed);
    }
    let to = mac_at(head, 0);
    let unicast = to == host.mac;
    if !unicast && to != BROADCAST {
        return Packet::Dropped(Why::Foreign);
    }
    match be16(head, 12) {
        IPV4_TYPE => ipv4(head, len, host, unicast).unwrap_or_else(Packet::Dropped),
        ARP_TYPE => Packet::Arp,
        _ => Packet::Dropped(Why::Foreign),
    }
}

fn ipv4(head: &Head, len: usize, host: &Host, unicast: bool) -> Result<Packet, Why> {
    let total = be16(head, 16) as usize;
    if len < ETHERNET + IPV4 || total < IPV4 || total > len - ETHERNET || head[14] >> 4 != 4 {
        return Err(Why::Malformed);
    }
    // Version 4 with a header of 20 bytes; neither "more fragments" nor an offset nor the reserved bit.
    if head[14] != 0x45 || be16(head, 20) & 0xbfff != 0 {
        return Err(Why::Unsupported);
    }
    let (source, destination, end) = (be32(head, 26), be32(head, 30), ETHERNET + total);
    if !Sum::default().bytes(&head[14..34]).is_valid() {
        return Err(Why::Malformed);
    }
    let ours = destination == host.ip && host.ip != 0;
    match head[23] {
        TCP_PROTOCOL | ICMP_PROTOCOL if !ours || !unicast => Err(Why::Foreign),
        TCP_PROTOCOL | ICMP_PROTOCOL if !is_host(source) || source == host.ip => Err(Why::Malformed),
        TCP_PROTOCOL => tcp(head, end, source, host),
        ICMP_PROTOCOL => Ok(Packet::Icmp { end }),
        // DHCP answers come to an address that isn't ours yet, or to everybody.
        UDP_PROTOCOL => Ok(Packet::Udp { end }),
        _ => Err(Why::Foreign),
    }
}

fn tcp(head: &Head, end: usize, ip: u32, host: &Host) -> Result<Packet, Why> {
    let header = (head[46] >> 4) as usize * 4;
    let (port, payload_at) = (be16(head, 34), ETHERNET + IPV4 + header);
    if end < HEADERS || header < 20 || payload_at > end || port == 0 {
        return Err(Why::Malformed);
    }
    if be16(head, 36) != host.port {
        return Err(Why::Foreign);
    }
    Ok(Packet::Tcp(Segment {
        mac: mac_at(head, 6),
        ip,
        port,
        seq: be32(head, 38),
        ack: be32(head, 42),
        flags: head[47] & (FIN | SYN | RST | PSH | ACK),
        window: be16(head, 48),
        options_len: (header - 20) as u8,
        payload_at: payload_at as u16,
        len: (end - payload_at) as u16,
    }))
}

/// Verifies the TCP checksum of a frame that [`parse`] took for a segment, cut to the end of the datagram.
pub fn checksum_holds(frame: &[u8]) -> bool {
    let Some((head, _)) = frame.split_first_chunk::<HEADERS>() else { return false };
    let address = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let tcp = &frame[ETHERNET + IPV4..];
    Sum::pseudo(address(26), address(30), TCP_PROTOCOL, tcp.len()).bytes(tcp).is_valid()
}

/// The options of a SYN that we act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynOptions {
    pub mss: u16,
    /// The peer's shift (at most 14), if it scales at all.
    pub shift: Option<u8>,
}

impl SynOptions {
    /// RFC 9293 3.2: kinds 0 and 1 are one byte, all others carry a length. A malformed list ends the reading.
    pub fn parse(mut options: &[u8]) -> Self {
        let mut found = SynOptions { mss: 536, shift: None };
        while let [kind, rest @ ..] = options {
            options = match (kind, rest) {
                (0, _) => break,
                (1, rest) => rest,
                (2, [4, a, b, rest @ ..]) => {
                    found.mss = u16::from_be_bytes([*a, *b]);
                    rest
                }
                (3, [3, shift, rest @ ..]) => {
                    found.shift = Some((*shift).min(14));
                    rest
                }
                (_, [len, ..]) if *len >= 2 && *len as usize <= options.len() => &options[*len as usize..],
                _ => break,
            };
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::*;

    const HOST: Host = Host { mac: [2, 0, 0, 0, 0, 1], ip: 0x0a00_0001, port: 8883 };

    /// A segment of `payload` bytes as smoltcp writes it.
    pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
        let tcp = TcpRepr {
            src_port: 4000,
            dst_port: 8883,
            control: TcpControl::Psh,
            seq_number: TcpSeqNumber(77),
            ack_number: Some(TcpSeqNumber(-5)),
            window_len: 1000,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload,
        };
        let (from, to) = (Ipv4Address::new(10, 0, 0, 2), Ipv4Address::new(10, 0, 0, 1));
        let ip = Ipv4Repr {
            src_addr: from,
            dst_addr: to,
            next_header: IpProtocol::Tcp,
            payload_len: tcp.buffer_len(),
            hop_limit: 64,
        };
        let mut bytes = vec![0; ETHERNET + IPV4 + tcp.buffer_len()];
        let mut eth = EthernetFrame::new_unchecked(&mut bytes);
        eth.set_dst_addr(EthernetAddress(HOST.mac));
        eth.set_src_addr(EthernetAddress([2, 0, 0, 0, 0, 2]));
        eth.set_ethertype(EthernetProtocol::Ipv4);
        ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[14..]), &Default::default());
        let mut packet = TcpPacket::new_unchecked(&mut bytes[34..]);
        tcp.emit(&mut packet, &from.into(), &to.into(), &Default::default());
        bytes
    }

    fn parse_all(frame: &[u8]) -> Packet {
        let mut head = [0xee; MAX_HEADERS];
        let n = frame.len().min(MAX_HEADERS);
        head[..n].copy_from_slice(&frame[..n]);
        parse(&head, frame.len(), &HOST)
    }

    #[test]
    fn reads_what_smoltcp_writes() {
        let Packet::Tcp(s) = parse_all(&frame(b"hello")) else { panic!() };
        assert_eq!((s.ip, s.port, s.seq, s.ack), (0x0a00_0002, 4000, 77, -5i32 as u32));
        assert_eq!((s.flags, s.window, s.len, s.payload_at), (ACK | PSH, 1000, 5, 54));
    }

    #[test]
    fn padding_of_short_frames_is_no_payload() {
        let mut padded = frame(b"");
        padded.resize(60, 0);
        let Packet::Tcp(s) = parse_all(&padded) else { panic!() };
        assert_eq!(s.len, 0);
    }

    #[test]
    fn refuses_what_is_not_strictly_ours() {
        let change = |at: usize, value: u8| {
            let mut f = frame(b"hello");
            f[at] = value;
            // A right header checksum, so that the field under test decides.
            f[24..26].fill(0);
            let sum = Sum::default().bytes(&f[14..34]).finish();
            f[24..26].copy_from_slice(&sum);
            parse_all(&f)
        };
        assert!(matches!(change(22, 1), Packet::Tcp(_)), "any time to live will do");
        assert_eq!(change(0, 1), Packet::Dropped(Why::Foreign), "multicast");
        assert_eq!(change(14, 0x46), Packet::Dropped(Why::Unsupported), "options");
        assert_eq!(change(20, 0x20), Packet::Dropped(Why::Unsupported), "more fragments");
        assert_eq!(change(21, 1), Packet::Dropped(Why::Unsupported), "offset");
        assert_eq!(change(14, 0x65), Packet::Dropped(Why::Malformed), "version");
        assert_eq!(change(17, 200), Packet::Dropped(Why::Malformed), "longer than the frame");
        assert_eq!(change(26, 127), Packet::Dropped(Why::Malformed), "loopback source");
        assert_eq!(change(26, 224), Packet::Dropped(Why::Malformed), "multicast source");
        assert_eq!(change(33, 9), Packet::Dropped(Why::Foreign), "other host");
        assert_eq!(change(37, 1), Packet::Dropped(Why::Foreign), "other port");
        assert_eq!(change(46, 0x40), Packet::Dropped(Why::Malformed), "short TCP header");
        assert_eq!(change(46, 0xf0), Packet::Dropped(Why::Malformed), "TCP header beyond the end");
        let mut f = frame(b"");
        f[24] ^= 1;
        assert_eq!(parse_all(&f), Packet::Dropped(Why::Malformed), "header checksum");
    }

    #[test]
    fn options_of_a_syn() {
        let parse = SynOptions::parse;
        let none = SynOptions { mss: 536, shift: None };
        assert_eq!(parse(&[2, 4, 5, 0xb4, 1, 3, 3, 7]), SynOptions { mss: 1460, shift: Some(7) });
        assert_eq!(parse(&[4, 2, 3, 3, 200]), SynOptions { mss: 536, shift: Some(14) });
        assert_eq!(parse(&[0, 2, 4, 5, 0xb4]), none, "after the end");
        for malformed in [&[2][..], &[2, 4, 5], &[3, 4, 1, 1], &[8, 0, 8, 0], &[8, 1], &[9, 200]] {
            assert_eq!(parse(malformed), none, "{malformed:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(head: [u8; MAX_HEADERS], len in 0usize..2048, zeros in 0usize..64) {
            let mut head = head;
            head[..6].copy_from_slice(&HOST.mac);
            head[12..15].copy_from_slice(&[8, 0, 0x45]);
            head[20..20 + zeros.min(40)].fill(0);
            if let Packet::Tcp(s) = parse(&head, len, &HOST) {
                proptest::prop_assert!(s.payload_at as usize + s.len as usize <= len);
            }
        }

        #[test]
        fn any_options(options: Vec<u8>) {
            SynOptions::parse(&options);
        }
    }
}

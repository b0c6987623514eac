//! Writing a TCP segment into a transmit buffer.

use crate::checksum::Sum;
use crate::packet::{ETHERNET, HEADERS, IPV4, Mac, TCP_PROTOCOL};

/// All of a segment's headers but lengths and checksums. Addresses and numbers in host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub from: Mac,
    pub to: Mac,
    pub from_ip: u32,
    pub to_ip: u32,
    pub from_port: u16,
    pub to_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub ident: u16,
}

/// Completes the frame whose payload of `len` bytes stands behind headers and `options` (whole words, at most 40 bytes)
/// already. Returns the frame's length.
pub fn segment(frame: &mut [u8], header: &Header, options: &[u8], len: usize) -> usize {
    let (head, tail) = frame.split_at_mut(HEADERS);
    let tail = &mut tail[..options.len() + len];
    tail[..options.len()].copy_from_slice(options);
    let tcp_len = HEADERS - ETHERNET - IPV4 + tail.len();

    head[..6].copy_from_slice(&header.to);
    head[6..12].copy_from_slice(&header.from);
    head[12..14].copy_from_slice(&[0x08, 0x00]);
    ipv4(&mut head[14..34], header, (IPV4 + tcp_len) as u16);

    head[34..36].copy_from_slice(&header.from_port.to_be_bytes());
    head[36..38].copy_from_slice(&header.to_port.to_be_bytes());
    head[38..42].copy_from_slice(&header.seq.to_be_bytes());
    head[42..46].copy_from_slice(&header.ack.to_be_bytes());
    head[46..48].copy_from_slice(&[(5 + options.len() as u8 / 4) << 4, header.flags]);
    head[48..50].copy_from_slice(&header.window.to_be_bytes());
    head[50..54].fill(0);
    let sum = Sum::pseudo(header.from_ip, header.to_ip, TCP_PROTOCOL, tcp_len);
    let sum = sum.bytes(&head[34..54]).bytes(tail);
    head[50..52].copy_from_slice(&sum.finish());
    HEADERS + tail.len()
}

/// "Don't fragment" stays clear: a path with a smaller MTU fragments instead of swallowing what is too long.
fn ipv4(ip: &mut [u8], header: &Header, total: u16) {
    ip[..2].copy_from_slice(&[0x45, 0]);
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[4..6].copy_from_slice(&header.ident.to_be_bytes());
    ip[6..12].copy_from_slice(&[0, 0, 64, TCP_PROTOCOL, 0, 0]);
    ip[12..16].copy_from_slice(&header.from_ip.to_be_bytes());
    ip[16..20].copy_from_slice(&header.to_ip.to_be_bytes());
    let sum = Sum::default().bytes(ip).finish();
    ip[10..12].copy_from_slice(&sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{ACK, PSH};
    use smoltcp::wire::*;

    proptest::proptest! {
        /// smoltcp reads what we write, checksums included.
        #[test]
        fn smoltcp_reads_it(
            seq: u32, ack: u32, window: u16, ident: u16, payload in proptest::collection::vec(0u8.., 0..1400), mss: bool,
        ) {
            let options: &[u8] = if mss { &[2, 4, 5, 180, 1, 3, 3, 1] } else { &[] };
            let header = Header {
                from: [2, 0, 0, 0, 0, 1], to: [2, 0, 0, 0, 0, 2], from_ip: 0x0a000001, to_ip: 0x0a000002,
                from_port: 8883, to_port: 4000, seq, ack, flags: ACK | PSH, window, ident,
            };
            let mut frame = vec![0xaa; 1600];
            let at = HEADERS + options.len();
            frame[at..at + payload.len()].copy_from_slice(&payload);
            let len = segment(&mut frame, &header, options, payload.len());
            let eth = EthernetFrame::new_checked(&frame[..len]).unwrap();
            let ip = Ipv4Packet::new_checked(eth.payload()).unwrap();
            let ip_repr = Ipv4Repr::parse(&ip, &Default::default()).unwrap();
            let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
            let addresses = (ip_repr.src_addr.into(), ip_repr.dst_addr.into());
            let repr = TcpRepr::parse(&tcp, &addresses.0, &addresses.1, &Default::default()).unwrap();
            proptest::prop_assert_eq!(repr.payload, &payload[..]);
            proptest::prop_assert_eq!(repr.seq_number, TcpSeqNumber(seq as i32));
            proptest::prop_assert_eq!(repr.ack_number, Some(TcpSeqNumber(ack as i32)));
            proptest::prop_assert_eq!(repr.window_len, window);
            proptest::prop_assert_eq!(repr.window_scale, mss.then_some(1));
        }
    }
}

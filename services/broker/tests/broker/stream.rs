//! Arbitrary streams, and arbitrary cuts of good ones.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_streams_break_nothing(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        broker::fuzz::streams(&data);
    }

    #[test]
    fn scripts_of_sessions_break_nothing(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        broker::fuzz::sessions(&data);
    }

    /// Packets that are nearly good, so that more than the parser is reached.
    #[test]
    fn damaged_conversations_break_nothing(
        start in any::<u8>(),
        parts in proptest::collection::vec((0usize..9, any::<u8>(), proptest::option::of((0usize..40, any::<u8>()))), 0..30),
    ) {
        let mut data = vec![start | 7];
        for (what, how, damage) in parts {
            let topic = ["devices/d/a", "devices/e/#", "devices/+/a", "$SYS/#", "x"][how as usize % 5];
            let qos = Qos::from_number(how % 3).unwrap();
            let id = how as u16 / 8;
            let mut packet = match what {
                0 => client::publish(topic, &[how; 20], qos, id, how & 8 == 8, false),
                1 => client::subscribe(id, &[(topic, how % 3)]),
                2 => client::unsubscribe(id, &[topic]),
                3 => client::acknowledge(kind::PUBACK, id),
                4 => client::acknowledge(kind::PUBREC, id),
                5 => client::acknowledge(kind::PUBREL, id),
                6 => client::acknowledge(kind::PUBCOMP, id),
                7 => client::Connect { id: ["d", "e", "op"][how as usize >> 6 & 1], clean: how & 1 == 0, ..Default::default() }.bytes(),
                _ => client::PINGREQ.to_vec(),
            };
            if let Some((at, with)) = damage {
                let at = at.min(packet.len() - 1);
                packet[at] = with;
            }
            // As `streams` cuts: two bits of connection, six of length.
            for part in packet.chunks(0x3f) {
                data.push((how >> 6).min(2) << 6 | part.len() as u8);
                data.extend_from_slice(part);
            }
        }
        broker::fuzz::streams(&data);
    }

    #[test]
    fn cuts_do_not_matter(cuts in proptest::collection::vec(1usize..700, 1..40)) {
        let mut b = bench();
        let c = device(&mut b, 0, "d1");
        subscribe(&mut b, c, &[("devices/d1/#", 0)]);
        let mut stream: Vec<u8> = (0..60u16)
            .flat_map(|i| client::publish("devices/d1/x", &vec![i as u8; i as usize * 17], Qos::AtLeastOnce, i + 1, false, false))
            .collect();
        for cut in cuts {
            let part: Vec<u8> = stream.drain(..cut.min(stream.len())).collect();
            if !part.is_empty() {
                b.send(c, &part);
            }
            b.run();
        }
        b.send(c, &stream);
        let sizes: Vec<usize> = messages(&mut b, c).iter().map(|m| m.payload.len()).collect();
        prop_assert_eq!(sizes, (0..60).map(|i| i * 17).collect::<Vec<usize>>());
    }
}

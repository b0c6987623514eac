use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

/// Two ends of one connection, with caches of their own.
fn pair(suite: Suite) -> [(Session, KeyCache); 2] {
    let (a, b) = (vec![1; suite.secret_len()], vec![2; suite.secret_len()]);
    [(&a, &b), (&b, &a)].map(|(receive, send)| {
        (Session::new(suite, Secrets::new(suite, receive, send).unwrap()), KeyCache::new(2))
    })
}

fn seal(end: &mut (Session, KeyCache), content: Content, text: &[u8]) -> Vec<u8> {
    let mut record = vec![0; text.len() + OVERHEAD];
    let len = end.0.seal_message(&mut end.1, 7, content, text, &mut record).unwrap();
    assert_eq!((len, body_len(*record.first_chunk().unwrap())), (record.len(), Ok(len - HEADER)));
    record
}

fn open(end: &mut (Session, KeyCache), record: &[u8]) -> Result<Received, Alert> {
    end.0.open(&mut end.1, 7, &mut record.to_vec())
}

#[test]
fn known_answers() {
    assert!(self_test());
}

#[test]
fn headers() {
    assert_eq!(body_len([23, 3, 3, 0, 17]), Ok(17));
    assert_eq!(body_len([23, 0, 9, 0x41, 0]), Ok(MAX_BODY), "the version means nothing");
    assert_eq!(body_len([23, 3, 3, 0x41, 1]), Err(Alert::RecordOverflow));
    assert_eq!(body_len([23, 3, 3, 0, 16]), Err(Alert::BadRecordMac));
    for kind in (0..=255).filter(|k| *k != 23) {
        assert_eq!(body_len([kind, 3, 3, 0, 1]), Err(Alert::UnexpectedMessage));
    }
}

#[test]
fn what_is_sealed_opens_once_and_in_order() {
    for suite in SUITES {
        let [mut a, mut b] = pair(suite);
        let (first, second) = (seal(&mut a, Content::Data, b"first"), seal(&mut a, Content::Data, b"second"));
        assert_eq!(open(&mut b, &second), Err(Alert::BadRecordMac), "out of order");
        assert_eq!(open(&mut b, &first), Ok(Received::Data(5..10)));
        assert_eq!(open(&mut b, &first), Err(Alert::BadRecordMac), "again");
        assert_eq!(open(&mut b, &second), Ok(Received::Data(5..11)));
        assert_eq!(open(&mut a, &second), Err(Alert::BadRecordMac), "the other direction's");
    }
}

#[test]
fn the_largest_record_and_one_more() {
    let [mut a, mut b] = pair(Suite::Aes128Gcm);
    let record = seal(&mut a, Content::Data, &vec![9; MAX_PAYLOAD]);
    assert_eq!(open(&mut b, &record), Ok(Received::Data(HEADER..HEADER + MAX_PAYLOAD)));
    let mut buffer = vec![0; MAX_PAYLOAD + 1 + OVERHEAD];
    assert_eq!(a.0.seal(&mut a.1, 7, Content::Data, &mut buffer, MAX_PAYLOAD + 1), None);
    assert_eq!(a.0.seal(&mut a.1, 7, Content::Data, &mut buffer[..100], 100), None);
}

/// Seals `inner` as it is: text, content type and padding are the caller's.
fn seal_inner(end: &mut (Session, KeyCache), inner: &[u8]) -> Vec<u8> {
    let (&content, text) = inner.split_last().unwrap();
    let len = text.len() + OVERHEAD;
    let mut record = vec![0; len];
    let key = end.0.secrets.key(end.0.suite, Direction::Send);
    record[..HEADER].copy_from_slice(&[23, 3, 3, ((len - HEADER) >> 8) as u8, (len - HEADER) as u8]);
    record[HEADER..len - 17].copy_from_slice(text);
    record[len - 17] = content;
    let (header, body) = record.split_at_mut(HEADER);
    let (inner, tag) = body.split_at_mut(text.len() + 1);
    tag.copy_from_slice(key.seal(end.0.sent as u64, header, inner).unwrap().as_ref());
    end.0.sent += 1;
    record
}

#[test]
fn inner_content() {
    use Alert::{DecodeError, IllegalParameter, RecordOverflow, UnexpectedMessage};
    let too_long = [vec![1; MAX_PAYLOAD + 1], vec![23]].concat();
    let padded = [vec![1; 3], vec![23], vec![0; 200]].concat();
    let cases: [(&[u8], Result<Received, Alert>); 18] = [
        (&[5, 23], Ok(Received::Data(5..6))),
        (&padded, Ok(Received::Data(5..8))),
        (&[23], Ok(Received::Nothing)),
        (&[0, 0], Err(UnexpectedMessage)),
        (&[1, 20], Err(UnexpectedMessage)),
        (&[1, 99], Err(UnexpectedMessage)),
        (&too_long, Err(RecordOverflow)),
        (&[1, 0, 21], Ok(Received::Closed)),
        (&[2, 90, 21], Ok(Received::Nothing)),
        (&[2, 40, 21], Ok(Received::Failed(40))),
        (&[1, 21], Err(DecodeError)),
        (&[1, 0, 0, 21], Err(DecodeError)),
        (&[24, 0, 0, 1, 0, 22], Ok(Received::Nothing)),
        (&[24, 0, 0, 1, 2, 22], Err(IllegalParameter)),
        (&[24, 0, 0, 2, 0, 22], Err(DecodeError)),
        (&[24, 0, 0, 1, 0, 24, 22], Err(UnexpectedMessage)),
        (&[11, 0, 0, 0, 22], Err(UnexpectedMessage)),
        (&[22], Err(UnexpectedMessage)),
    ];
    for (inner, expected) in cases {
        let [mut a, mut b] = pair(Suite::ChaCha20Poly1305);
        let record = seal_inner(&mut a, inner);
        assert_eq!(open(&mut b, &record), expected, "{:?}", &inner[..inner.len().min(8)]);
    }
}

#[test]
fn a_key_update_may_come_in_parts_but_nothing_between_them() {
    let message = [24, 0, 0, 1, 1];
    for cut in 1..5 {
        let [mut a, mut b] = pair(Suite::Aes128Gcm);
        let (first, second) = message.split_at(cut);
        for part in [first, second] {
            let record = seal(&mut a, Content::Handshake, part);
            assert_eq!(open(&mut b, &record), Ok(Received::Nothing));
        }
        assert!(b.0.wants_key_update());
        a.0.secrets.update(a.0.suite, Direction::Send);
        a.1.forget(7, Direction::Send);
        a.0.sent = 0;
        let record = seal(&mut a, Content::Data, b"under the new key");
        assert!(matches!(open(&mut b, &record), Ok(Received::Data(_))));
        let [mut a, mut b] = pair(Suite::Aes128Gcm);
        let (first, between) = (seal(&mut a, Content::Handshake, first), seal(&mut a, Content::Data, b"x"));
        assert_eq!(open(&mut b, &first), Ok(Received::Nothing));
        assert_eq!(open(&mut b, &between), Err(Alert::UnexpectedMessage));
    }
}

#[test]
fn our_key_changes_before_it_is_worn() {
    let [mut a, mut b] = pair(Suite::Aes128Gcm);
    a.0.sent = RECORDS_PER_KEY - 2;
    b.0.received = a.0.sent as u64;
    let record = seal(&mut a, Content::Data, b"x");
    assert!(open(&mut b, &record).is_ok() && a.0.wants_key_update());
    let mut record = [0; SMALL_RECORD];
    let len = a.0.seal_key_update(&mut a.1, 7, &mut record).unwrap();
    assert_eq!(open(&mut b, &record[..len]), Ok(Received::Nothing));
    assert!(!a.0.wants_key_update() && !b.0.wants_key_update());
    let record = seal(&mut a, Content::Data, b"y");
    assert_eq!((open(&mut b, &record), a.0.sent, b.0.received), (Ok(Received::Data(5..6)), 1, 1));
    a.0.sent = RECORDS_PER_KEY;
    let mut buffer = [0; 100];
    assert_eq!(a.0.seal(&mut a.1, 7, Content::Data, &mut buffer, 1), None, "never one more");
}

#[test]
fn records_without_data_are_bounded_and_data_counts_anew() {
    let [mut a, mut b] = pair(Suite::Aes128Gcm);
    for _ in 0..3 {
        for _ in 0..IDLE_RECORDS {
            let record = seal(&mut a, Content::Data, b"");
            assert_eq!(open(&mut b, &record), Ok(Received::Nothing));
        }
        let record = seal(&mut a, Content::Data, b"x");
        assert!(open(&mut b, &record).is_ok());
    }
    for n in 0..=IDLE_RECORDS {
        let record = seal(&mut a, Content::Data, b"");
        assert_eq!(open(&mut b, &record).is_ok(), n < IDLE_RECORDS);
    }
}

#[test]
fn the_cache_keeps_connections_apart() {
    let mut keys = KeyCache::new(4);
    let mut ends: Vec<_> =
        (0..6_u8).map(|n| Secrets::new(Suite::Aes128Gcm, &[n; 32], &[n; 32]).unwrap()).collect();
    let sealed = |key: &Key| {
        let mut text = [0; 4];
        (key.seal(0, b"", &mut text).unwrap().as_ref().to_vec(), text)
    };
    for round in 0..3 {
        for (n, end) in ends.iter_mut().enumerate() {
            let fresh = sealed(&end.key(Suite::Aes128Gcm, Direction::Send));
            let kept =
                sealed(keys.get(n as u32, Direction::Send, || end.key(Suite::Aes128Gcm, Direction::Send)));
            assert!(fresh == kept, "round {round}, connection {n}");
        }
    }
    // A number's next generation is another connection.
    let derived = core::cell::Cell::new(0);
    for conn in [1, 1, 1 | 1 << 20] {
        keys.get(conn, Direction::Receive, || {
            derived.set(derived.get() + 1);
            ends[0].key(Suite::Aes128Gcm, Direction::Receive)
        });
    }
    assert_eq!(derived.get(), 2);
}

proptest! {
    #[test]
    fn no_bytes_open_and_none_panic(record in proptest::collection::vec(any::<u8>(), 0..300), suite in 0..3_usize) {
        let [_, mut b] = pair(SUITES[suite]);
        prop_assert!(open(&mut b, &record).is_err());
    }

    #[test]
    fn any_sealed_content_is_answered(inner in proptest::collection::vec(any::<u8>(), 1..40)) {
        let [mut a, mut b] = pair(Suite::Aes128Gcm);
        let record = seal_inner(&mut a, &inner);
        let _ = open(&mut b, &record);
        prop_assert!(b.0.fragment_len <= 5);
    }
}

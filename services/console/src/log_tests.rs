use super::*;
use alloc::vec::Vec;
use ipc::testing::{Kernel, PoolMemory, link};
use proptest::prelude::*;

#[derive(Default)]
struct Paper(Vec<u8>);

impl Serial for Paper {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    fn read(&mut self) -> Option<u8> {
        None
    }
}

struct Bench {
    task: End<'static, Line, Written>,
    console: End<'static, Written, Line>,
    log: Log,
    source: Source,
    paper: Paper,
}

fn bench(config: Config) -> Bench {
    let none = PoolMemory::new(0, 8);
    let (task, console) = link(&Kernel::default(), 16, (1, 2), PoolMemory::new(8, 256), none);
    let log = Log::new(config);
    let source = log.source("nic");
    Bench { task, console, log, source, paper: Paper::default() }
}

impl Bench {
    fn say(&mut self, level: Level, text: &[u8], dropped: u16) {
        let buf = self.task.own.take().expect("a free buffer");
        self.task.own.bytes(buf)[..text.len()].copy_from_slice(text);
        self.task.own.lend(buf);
        assert!(self.task.send(&Line { level, buf, len: text.len() as u16, dropped }));
    }

    fn printed(&mut self, now: u64) -> String {
        let _ = self.task.flush();
        self.log.drain(&mut self.source, &mut self.console, now, &mut self.paper);
        let _ = self.console.flush();
        while let Some(Written { buf }) = self.task.recv() {
            self.task.own.give_back(buf).expect("the console returns each buffer once");
        }
        String::from_utf8(core::mem::take(&mut self.paper.0)).expect("what is printed is UTF-8")
    }
}

#[test]
fn lines_have_time_and_name() {
    let mut b = bench(Config::default());
    b.say(Level::Info, b"hello", 0);
    b.say(Level::Error, "schön".as_bytes(), 0);
    b.say(Level::Debug, b"not at this level", 0);
    let printed = b.printed(12_003_456_789);
    assert_eq!(printed, "[ 12.003456] nic: hello\r\n[ 12.003456] nic: error: schön\r\n");
    assert_eq!(b.task.own.available(), 8);
}

#[test]
fn nothing_steers_the_terminal() {
    let mut b = bench(Config::default());
    b.say(Level::Info, b"a\x1b[2Jb\r\nurmqtt\x00\xff\xc2\x9b", 0);
    assert_eq!(b.printed(0), "[  0.000000] nic: a\\x1b[2Jb\\x0d\\x0aurmqtt\\x00\\xff\\x9b\r\n");
}

#[test]
fn a_flood_is_cut_and_counted() {
    let mut b = bench(Config { lines_per_second: 1, burst: 3, ..Config::default() });
    for _ in 0..8 {
        b.say(Level::Info, b"x", 0);
    }
    assert_eq!(b.printed(0).lines().count(), 3);
    assert_eq!(b.task.own.available(), 8, "buffers of lines that were left out come back too");
    b.say(Level::Info, b"later", 2);
    let printed = b.printed(1_000_000_000);
    assert_eq!(printed, "[  1.000000] nic: (7 lines left out)\r\n[  1.000000] nic: later\r\n");
}

#[test]
fn lies_are_told_once_and_end_the_link() {
    for (buf, len) in [(8, 1), (u32::MAX, 1), (0, 257), (0, u16::MAX)] {
        let mut b = bench(Config::default());
        assert!(b.task.send(&Line { level: Level::Info, buf, len, dropped: 0 }));
        assert_eq!(b.printed(0), "[  0.000000] nic: broke the rules of its log: Buffer\r\n");
        assert_eq!(b.printed(1), "");
        assert!(!b.console.is_up());
    }
}

proptest! {
    #[test]
    fn any_bytes_make_one_printable_line(text in proptest::collection::vec(any::<u8>(), 0..256)) {
        let mut b = bench(Config::default());
        b.say(Level::Info, &text, 0);
        let printed = b.printed(7);
        let line = printed.strip_suffix("\r\n").expect("a whole line");
        prop_assert!(line.chars().all(|c| !c.is_control()));
    }

    #[test]
    fn scripts_break_nothing(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzz::run(&script);
    }
}

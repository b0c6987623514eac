//! What is typed on the serial line of a development image.

use crate::Serial;
use alloc::string::String;
use ipc::link::console::Command;

/// Longest command.
const MAX_INPUT: usize = 64;

pub const HELP: &str = "commands: status, kill TASK, reboot, poweroff, help";

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Command(Command),
    Help,
    /// What is wrong with it.
    Wrong(String),
}

/// `tasks`: name and number of each task that can be killed.
pub fn parse<'a>(line: &str, mut tasks: impl Iterator<Item = (&'a str, u16)>) -> Option<Request> {
    let mut words = line.split_ascii_whitespace();
    let verb = words.next()?;
    let (object, more) = (words.next(), words.next());
    let wrong = |text| Some(Request::Wrong(text));
    if more.is_some() {
        return wrong(alloc::format!("too many words; {HELP}"));
    }
    Some(match (verb, object) {
        ("status", None) => Request::Command(Command::Status),
        ("reboot", None) => Request::Command(Command::Reboot),
        ("poweroff", None) => Request::Command(Command::PowerOff),
        ("help", None) => Request::Help,
        ("kill", Some(name)) => match tasks.find(|&(n, _)| n == name) {
            Some((_, task)) => Request::Command(Command::Kill { task }),
            None => return wrong(alloc::format!("there is no task {name:?}; status shows all")),
        },
        ("kill", None) => return wrong("kill what? status shows all tasks".into()),
        ("status" | "reboot" | "poweroff" | "help", Some(_)) => {
            return wrong(alloc::format!("{verb} stands alone"));
        }
        _ => return wrong(alloc::format!("no command {verb:?}; {HELP}")),
    })
}

/// Puts a line together from what is typed, with echo.
#[derive(Debug, Default)]
pub struct Editor {
    line: String,
}

impl Editor {
    /// The line that was ended, if there is one. Reads at most as much as a few lines.
    pub fn read(&mut self, serial: &mut impl Serial) -> Option<String> {
        const BACKSPACE: u8 = 8;
        const DELETE: u8 = 127;
        for _ in 0..4 * MAX_INPUT {
            match serial.read()? {
                b'\r' | b'\n' if self.line.is_empty() => {}
                b'\r' | b'\n' => {
                    serial.write(b"\r\n");
                    return Some(core::mem::take(&mut self.line));
                }
                BACKSPACE | DELETE => {
                    if self.line.pop().is_some() {
                        serial.write(b"\x08 \x08");
                    }
                }
                byte @ b' '..=b'~' if self.line.len() < MAX_INPUT => {
                    self.line.push(byte as char);
                    serial.write(&[byte]);
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    fn request(line: &str) -> Option<Request> {
        parse(line, [("supervisor", 0), ("nic", 1)].into_iter())
    }

    #[test]
    fn commands() {
        let command = |c| Some(Request::Command(c));
        assert_eq!(request("kill nic"), command(Command::Kill { task: 1 }));
        assert_eq!(request(" kill  supervisor "), command(Command::Kill { task: 0 }));
        assert_eq!(request("status"), command(Command::Status));
        assert_eq!(request("reboot"), command(Command::Reboot));
        assert_eq!(request("poweroff"), command(Command::PowerOff));
        assert_eq!(request("help"), Some(Request::Help));
        assert_eq!(request("  "), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, words) in [
            ("kill", "kill what"),
            ("kill nick", "no task \"nick\""),
            ("kill nic now", "too many words"),
            ("status nic", "stands alone"),
            ("reboto", "no command \"reboto\""),
        ] {
            let Some(Request::Wrong(text)) = request(line) else { panic!("{line} was taken") };
            assert!(text.contains(words), "{line}: {text}");
        }
    }

    struct Keys(VecDeque<u8>, Vec<u8>);

    impl Serial for Keys {
        fn write(&mut self, bytes: &[u8]) {
            self.1.extend_from_slice(bytes);
        }
        fn read(&mut self) -> Option<u8> {
            self.0.pop_front()
        }
    }

    #[test]
    fn typing() {
        let mut keys = Keys(b"\r\nkilk\x08l nic\x1b\x00\rstat".to_vec().into(), Vec::new());
        let mut editor = Editor::default();
        assert_eq!(editor.read(&mut keys).as_deref(), Some("kill nic"));
        assert_eq!(editor.read(&mut keys), None);
        keys.0.extend(b"us\n");
        assert_eq!(editor.read(&mut keys).as_deref(), Some("status"));
        assert!(keys.1.starts_with(b"kilk\x08 \x08l nic\r\n"));
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut keys = Keys(core::iter::repeat_n(b'x', 10_000).collect(), Vec::new());
        let mut editor = Editor::default();
        while !keys.0.is_empty() {
            assert_eq!(editor.read(&mut keys), None);
        }
        assert_eq!(editor.line.len(), MAX_INPUT);
    }
}

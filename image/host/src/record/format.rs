//! The file of a recording.

use anyhow::{Context, Result, bail, ensure};
use ipc::ring::Desc;
use serde::{Deserialize, Serialize};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub const VERSION: u32 = 1;

/// First line: what is needed to start a service of the same system again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    pub urmqtt_recording: u32,
    /// Task graph, as in `image/systems`.
    pub graph: String,
    pub development: bool,
    /// The user's configuration, TOML.
    pub config: String,
    /// Links that were recorded.
    pub links: Vec<String>,
    pub says: String,
}

impl Header {
    pub fn new(graph: &str, development: bool, config: &str, links: &[String]) -> Self {
        Header {
            urmqtt_recording: VERSION,
            graph: graph.into(),
            development,
            config: config.into(),
            links: links.to_vec(),
            says:
                "Holds what clients sent, in the clear above tls, passwords included. Holds no private keys."
                    .into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Event {
    Message(Message),
    /// The task was started again, with empty links.
    Restart {
        /// Microseconds since the recording began.
        us: u64,
        restart: String,
    },
}

impl Event {
    pub fn us(&self) -> u64 {
        match self {
            Event::Message(m) => m.us,
            Event::Restart { us, .. } => *us,
        }
    }
}

/// One message, with the bytes that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub us: u64,
    pub link: String,
    /// The task that sent it.
    pub from: String,
    pub kind: u8,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flags: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub conn: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub buf: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub len: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "hex")]
    pub data: Vec<u8>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Message {
    pub fn new(us: u64, link: &str, from: &str, d: Desc, data: Vec<u8>) -> Self {
        Message {
            us,
            link: link.into(),
            from: from.into(),
            kind: d.kind,
            flags: d.flags as u32,
            off: d.off as u32,
            conn: d.conn,
            buf: d.buf,
            len: d.len,
            data,
        }
    }

    /// The descriptor, if its fields are in range.
    pub fn desc(&self) -> Result<Desc> {
        Ok(Desc {
            kind: self.kind,
            flags: self.flags.try_into().context("flags")?,
            off: self.off.try_into().context("off")?,
            conn: self.conn,
            buf: self.buf,
            len: self.len,
        })
    }
}

mod hex {
    use data_encoding::HEXLOWER;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        HEXLOWER.decode(text.as_bytes()).map_err(D::Error::custom)
    }
}

/// Writes a recording up to a size.
pub struct Writer {
    file: BufWriter<File>,
    left: u64,
}

impl Writer {
    /// A new file, for its owner's eyes; `limit` is in bytes.
    pub fn create(path: &Path, header: &Header, limit: u64) -> Result<Self> {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        // One that was there keeps its mode otherwise.
        file.set_permissions(Permissions::from_mode(0o600))?;
        let mut writer = Writer { file: BufWriter::new(file), left: limit };
        writer.line(header)?;
        Ok(writer)
    }

    pub fn event(&mut self, event: &Event) -> Result<()> {
        self.line(event)
    }

    pub fn flush(&mut self) -> Result<()> {
        Ok(self.file.flush()?)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.left = self.left.checked_sub(line.len() as u64).context("its limit of size is reached")?;
        Ok(self.file.write_all(&line)?)
    }
}

/// A recording, read and checked.
#[derive(Clone, Debug)]
pub struct Recording {
    pub header: Header,
    pub events: Vec<Event>,
}

impl Recording {
    /// Errors name the line.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(BufReader::new(file)).with_context(|| path.display().to_string())
    }

    pub fn parse(from: impl BufRead) -> Result<Self> {
        let mut lines = from.lines().enumerate();
        let Some((_, first)) = lines.next() else { bail!("an empty file is no recording") };
        let header: Header = serde_json::from_str(&first?).context("line 1: no recording of links")?;
        ensure!(
            header.urmqtt_recording == VERSION,
            "version {} of recordings; this command reads version {VERSION}",
            header.urmqtt_recording
        );
        let mut events = Vec::new();
        for (i, line) in lines {
            let at = || format!("line {}", i + 1);
            let event: Event = serde_json::from_str(&line.with_context(at)?).with_context(at)?;
            if let Event::Message(message) = &event {
                message.desc().with_context(at)?;
                ensure!(
                    header.links.contains(&message.link),
                    "{}: link {} is not in line 1",
                    at(),
                    message.link
                );
            }
            events.push(event);
        }
        Ok(Recording { header, events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> String {
        serde_json::to_string(&Header::new("sockets", true, "", &["session".into()])).unwrap()
    }

    proptest! {
        #[test]
        fn a_message_comes_back(kind: u8, flags: u8, off: u16, conn: u32, buf: u32, len: u32, data: Vec<u8>) {
            let desc = Desc { kind, flags, off, conn, buf, len };
            let event = Event::Message(Message::new(7, "session", "tls", desc, data));
            let text = format!("{}\n{}\n", header(), serde_json::to_string(&event).unwrap());
            let read = Recording::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(&read.events, &[event]);
            let Event::Message(message) = &read.events[0] else { panic!() };
            prop_assert_eq!(message.desc().unwrap(), desc);
        }
    }

    #[test]
    fn an_error_names_its_line() {
        let restart = r#"{"us":1,"restart":"tls"}"#;
        for (text, why) in [
            (String::new(), "an empty file"),
            ("{}".into(), "line 1"),
            (header().replace(":1,", ":9,"), "version 9"),
            (format!("{}\n{restart}\nx", header()), "line 3"),
            (
                format!("{}\n{{\"us\":1,\"link\":\"log\",\"from\":\"tls\",\"kind\":1}}", header()),
                "line 2: link log",
            ),
            (
                format!(
                    "{}\n{{\"us\":1,\"link\":\"session\",\"from\":\"tls\",\"kind\":1,\"off\":65536}}",
                    header()
                ),
                "line 2",
            ),
        ] {
            let error = format!("{:#}", Recording::parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_file_ends_at_its_limit() {
        let path = std::env::temp_dir().join(format!("urmqtt-recording-{}", std::process::id()));
        let head = Header::new("sockets", true, "", &["session".into()]);
        let mut writer = Writer::create(&path, &head, header().len() as u64 + 100).unwrap();
        let event = Event::Restart { us: 1, restart: "x".repeat(40) };
        assert!(writer.event(&event).is_ok());
        assert!(writer.event(&event).unwrap_err().to_string().contains("limit"));
        writer.flush().unwrap();
        assert_eq!(Recording::read(&path).unwrap().events, [event]);
        std::fs::remove_file(path).unwrap();
    }
}

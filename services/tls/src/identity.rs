//! Whom a verified client certificate names.
//!
//! * A SAN URI `urn:urmqtt:role:operator` makes an operator, named by the CN, or by that URI when there is no CN.
//! * A SAN URI `urn:urmqtt:device:<id>` makes the device `<id>`.
//! * Else the CN is the device.
//!
//! Whatever is named twice, or both ways, is refused: a certificate names one party.

use alloc::string::String;
use core::fmt;
use ipc::link::stream::{Identity, ROLE_DEVICE, ROLE_OPERATOR};
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ROLE_PREFIX: &str = "urn:urmqtt:role:";
const OPERATOR: &str = "urn:urmqtt:role:operator";
const DEVICE_PREFIX: &str = "urn:urmqtt:device:";
/// Bytes of a name at most: what [`Identity`] holds.
pub const MAX_NAME: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The certificate doesn't parse (though its signature is right).
    Malformed,
    /// Neither CN nor SAN URI.
    Nameless,
    /// Two names, or a device's and an operator's at once.
    Ambiguous,
    UnknownRole,
    /// Empty, too long, or with characters that a name can't have.
    BadName,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unusable::Malformed => "certificate can't be parsed",
            Unusable::Nameless => "certificate names nobody: no CN and no SAN URI",
            Unusable::Ambiguous => "certificate names more than one party",
            Unusable::UnknownRole => "certificate names an unknown role",
            Unusable::BadName => "name is empty, too long, or has characters that it can't have",
        })
    }
}

/// `der`: the client's certificate, verified. `operator_by_name`: the CN `operator` counts as an operator's.
pub fn identify(der: &[u8], operator_by_name: bool) -> Result<Identity, Unusable> {
    let certificate = Certificate::from_der(der).map_err(|_| Unusable::Malformed)?;
    let common_name = common_name(&certificate)?;
    let uris = uris(&certificate)?;
    let not_after = certificate.tbs_certificate().validity().not_after.to_unix_duration().as_secs();
    let operator = uris.operator || (operator_by_name && common_name.as_deref() == Some("operator"));
    match (operator, uris.device, common_name) {
        (true, Some(_), _) => Err(Unusable::Ambiguous),
        (true, None, name) => identity(ROLE_OPERATOR, name.as_deref().unwrap_or(OPERATOR), not_after),
        (false, Some(device), _) => identity(ROLE_DEVICE, &device, not_after),
        (false, None, Some(name)) => identity(ROLE_DEVICE, &name, not_after),
        (false, None, None) => Err(Unusable::Nameless),
    }
}

fn identity(role: u8, name: &str, not_after: u64) -> Result<Identity, Unusable> {
    // A device's name becomes a topic level, so it may not hold what separates or matches levels.
    let wild = |c: char| role == ROLE_DEVICE && matches!(c, '/' | '+' | '#');
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(|c| c.is_control() || wild(c)) {
        return Err(Unusable::BadName);
    }
    let mut bytes = [0; MAX_NAME];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(Identity { role, name_len: name.len() as u8, port: 0, ip: [0; 4], not_after, name: bytes })
}

fn common_name(certificate: &Certificate) -> Result<Option<String>, Unusable> {
    let mut names = certificate.tbs_certificate().subject().iter().filter(|a| a.oid == COMMON_NAME);
    let Some(name) = names.next() else { return Ok(None) };
    if names.next().is_some() {
        return Err(Unusable::Ambiguous);
    }
    if !matches!(name.value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String) {
        return Err(Unusable::BadName);
    }
    let text = core::str::from_utf8(name.value.value()).map_err(|_| Unusable::BadName)?;
    Ok(Some(text.into()))
}

#[derive(Default)]
struct Uris {
    operator: bool,
    device: Option<String>,
}

fn uris(certificate: &Certificate) -> Result<Uris, Unusable> {
    let mut found = Uris::default();
    let names = certificate.tbs_certificate().get_extension::<SubjectAltName>();
    let Some((_, SubjectAltName(names))) = names.map_err(|_| Unusable::Malformed)? else { return Ok(found) };
    for name in &names {
        let GeneralName::UniformResourceIdentifier(uri) = name else { continue };
        let uri = uri.as_str();
        if uri == OPERATOR {
            found.operator = true;
        } else if uri.starts_with(ROLE_PREFIX) {
            return Err(Unusable::UnknownRole);
        } else if let Some(id) = uri.strip_prefix(DEVICE_PREFIX)
            && found.device.replace(id.into()).is_some()
        {
            return Err(Unusable::Ambiguous);
        }
    }
    Ok(found)
}

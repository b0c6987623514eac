//! `urmqtt certs`: a CA with server, operator and device certificates.

use anyhow::{Context, Result, bail};
use builder::keys::write_private;
use indicatif::{ProgressBar, ProgressStyle};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose as Eku, IsCa,
    Issuer, KeyPair, KeyUsagePurpose as Usage, PKCS_ECDSA_P256_SHA256, SanType,
};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// What an operator's certificate carries; see the identity rules of the tls service.
const OPERATOR: &str = "urn:urmqtt:role:operator";

/// Make what is missing of a CA and its certificates (P-256, keys without a passphrase)
///
/// ca.crt, server.crt, operator.crt and devices/dev-00001.crt ... with their keys. A device's identity and MQTT client
/// identifier is its certificate's CN. Keep ca.key safe: who has it can be any device.
///
/// Example: urmqtt certs --devices 200
#[derive(clap::Args, Default)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[arg(long, default_value = "certs", env = "CERTS", value_name = "DIR")]
    dir: PathBuf,
    /// Devices, named dev-00001 and so on
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=99_999))]
    devices: u32,
    /// A device of this name, or one more certificate of it, that expired yesterday
    #[arg(long, value_name = "NAME")]
    expired: Vec<String>,
    /// More names and addresses of the server, beside localhost, 127.0.0.1, ::1, urmqtt and 10.83.83.2 (`urmqtt host --mode tap`)
    #[arg(long, value_name = "NAME")]
    server_name: Vec<String>,
    /// Replace everything that is there, the CA too
    #[arg(long)]
    force: bool,
    /// Do nothing when a server's and an operator's certificate are there, whatever else is missing
    #[arg(long, conflicts_with = "force")]
    if_needed: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if args.if_needed {
        return ensure(&args.dir);
    }
    match make(args)? {
        0 => println!("{}: complete already", args.dir.display()),
        made => println!("{}: {made} certificates made", args.dir.display()),
    }
    Ok(())
}

/// Makes the default set in `dir` if something is missing that an image and a first session need. A folder that was made
/// elsewhere may have other devices, and no key of its CA.
pub fn ensure(dir: &Path) -> Result<()> {
    let names = ["ca.crt", "server.crt", "server.key", "operator.crt", "operator.key"];
    if names.iter().all(|name| dir.join(name).exists()) {
        return Ok(());
    }
    let made = make(&Args { dir: dir.into(), devices: 10, ..Args::default() })?;
    eprintln!("urmqtt: {made} certificates made in {}", dir.display());
    Ok(())
}

fn make(args: &Args) -> Result<u32> {
    let devices = args.dir.join("devices");
    std::fs::create_dir_all(&devices).with_context(|| format!("cannot make {}", devices.display()))?;
    let mut maker = Maker { dir: &args.dir, force: args.force, issuer: None, made: 0 };
    maker.ca()?;
    maker.issue("server", "urmqtt", Role::Server(&args.server_name), Validity::YEARS_2)?;
    maker.issue("operator", "operator", Role::Operator, Validity::YEARS_2)?;
    let bar = progress(args.devices);
    for n in 1..=args.devices {
        let name = format!("dev-{n:05}");
        maker.issue(&format!("devices/{name}"), &name, Role::Device, Validity::YEARS_10)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    for name in &args.expired {
        if name.is_empty() || name.contains('/') {
            bail!("{name:?} is no name of a device");
        }
        maker.force = true;
        maker.issue(&format!("devices/{name}"), name, Role::Device, Validity::EXPIRED)?;
    }
    Ok(maker.made)
}

/// Shown from some hundred certificates on, which take seconds.
fn progress(devices: u32) -> ProgressBar {
    if devices < 200 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("certificates {bar:30} {pos}/{len} {eta}");
    ProgressBar::new(devices.into()).with_style(style.expect("the template is right"))
}

enum Role<'a> {
    Server(&'a [String]),
    Operator,
    Device,
}

/// Days from now.
struct Validity {
    from: i64,
    to: i64,
}

impl Validity {
    /// From yesterday: clocks differ.
    const YEARS_2: Self = Validity { from: -1, to: 730 };
    const YEARS_10: Self = Validity { from: -1, to: 3650 };
    const EXPIRED: Self = Validity { from: -30, to: -1 };
}

struct Maker<'a> {
    dir: &'a Path,
    force: bool,
    issuer: Option<Issuer<'static, KeyPair>>,
    made: u32,
}

impl Maker<'_> {
    fn ca(&mut self) -> Result<()> {
        let (certificate, key) = (self.dir.join("ca.crt"), self.dir.join("ca.key"));
        if certificate.exists() && !self.force {
            return Ok(());
        }
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params("urMQTT CA", Validity::YEARS_10)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![Usage::KeyCertSign, Usage::CrlSign];
        let signed = params.self_signed(&pair)?;
        save(&certificate, &key, &signed.pem(), &pair)?;
        self.made += 1;
        self.issuer = Some(Issuer::new(params, pair));
        Ok(())
    }

    /// The CA, read when a certificate is to be signed.
    fn issuer(&mut self) -> Result<&Issuer<'static, KeyPair>> {
        if self.issuer.is_none() {
            let (certificate, key) = (self.dir.join("ca.crt"), self.dir.join("ca.key"));
            let missing =
                "without the CA's key no certificate can be added; put it there, or use another --dir";
            let pair =
                std::fs::read_to_string(&key).with_context(|| format!("{}: {missing}", key.display()))?;
            let pair = KeyPair::from_pem(&pair).with_context(|| format!("{} is no key", key.display()))?;
            let pem = std::fs::read_to_string(&certificate)?;
            let issuer = Issuer::from_ca_cert_pem(&pem, pair)
                .with_context(|| format!("{} is no certificate of a CA", certificate.display()))?;
            self.issuer = Some(issuer);
        }
        Ok(self.issuer.as_ref().expect("just set"))
    }

    /// Certificate and key at `path`, unless both are there.
    fn issue(&mut self, path: &str, cn: &str, role: Role, validity: Validity) -> Result<()> {
        let certificate = self.dir.join(format!("{path}.crt"));
        let key = self.dir.join(format!("{path}.key"));
        if certificate.exists() && key.exists() && !self.force {
            return Ok(());
        }
        let mut params = params(cn, validity)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![Usage::DigitalSignature];
        params.extended_key_usages =
            vec![if matches!(role, Role::Server(_)) { Eku::ServerAuth } else { Eku::ClientAuth }];
        match role {
            Role::Server(more) => {
                let hosted = host::SERVED.to_string();
                let names = ["localhost", "urmqtt", "127.0.0.1", "::1", &hosted].into_iter();
                for name in names.chain(more.iter().map(String::as_str)) {
                    params.subject_alt_names.push(match name.parse() {
                        Ok(address) => SanType::IpAddress(address),
                        Err(_) => SanType::DnsName(name.try_into()?),
                    });
                }
            }
            Role::Operator => params.subject_alt_names.push(SanType::URI(OPERATOR.try_into()?)),
            Role::Device => {}
        }
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let signed = params.signed_by(&pair, self.issuer()?)?;
        save(&certificate, &key, &signed.pem(), &pair)?;
        self.made += 1;
        Ok(())
    }
}

fn params(cn: &str, validity: Validity) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, cn);
    let now = OffsetDateTime::now_utc();
    params.not_before = now + Duration::days(validity.from);
    params.not_after = now + Duration::days(validity.to);
    Ok(params)
}

/// Key first: a certificate that is there means that both are.
fn save(certificate: &Path, key: &Path, pem: &str, pair: &KeyPair) -> Result<()> {
    write_private(key, pair.serialize_pem().as_bytes())
        .with_context(|| format!("cannot write {}", key.display()))?;
    std::fs::write(certificate, pem).with_context(|| format!("cannot write {}", certificate.display()))
}

//! Certificates of an authority, for this package's tests.

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose as Purpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use runtime::Runtime;
use wire::tls::{Authority, Credentials, Identity, Strangers};

/// An authority.
pub struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key")
}

impl Signer {
    /// A new one.
    pub fn new() -> Signer {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = key();
        let certificate = params.self_signed(&authority).expect("signed").der().to_vec();
        Signer { issuer: Issuer::new(params, authority), certificate }
    }
    fn identity(&self, name: &str, purposes: &[Purpose]) -> Identity {
        let key = key();
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        params.extended_key_usages = purposes.to_vec();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(1970, 1, 1), rcgen::date_time_ymd(2200, 1, 1));
        let signed = params.signed_by(&key, &self.issuer).expect("signed").der().to_vec();
        Identity { chain: vec![signed.into(), self.certificate.clone().into()], key: key.serialize_der().into() }
    }
    /// The credentials of a server, which other servers accept as a client too, and its certificate.
    pub fn server(&self, name: &str, runtime: &Runtime) -> (Credentials, Box<[u8]>) {
        let identity = self.identity(name, &[Purpose::ServerAuth, Purpose::ClientAuth]);
        let clock = runtime.clock.clone();
        let credentials = Credentials::of_server(&identity, &self.certificate, Strangers::Refused, clock);
        (credentials.expect("good certificates"), identity.chain[0].clone())
    }
    /// The credentials of a client.
    #[allow(dead_code, reason = "not every test has a client")]
    pub fn client(&self, name: &str, runtime: &Runtime) -> Credentials {
        let identity = self.identity(name, &[Purpose::ClientAuth]);
        let authority = Authority::Known(&self.certificate);
        Credentials::of_client(Some(&identity), authority, runtime.clock.clone()).expect("good certificates")
    }
}

//! The certificates of both ends, which all ways share.

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose as Purpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use runtime::Runtime;
use wire::tls::{Authority, Credentials, Encryption, Identity, Strangers};

/// The server's name.
pub const NAME: &str = "server.sinter";

/// The certificates of a server and of a client, and the authority that has signed both.
pub struct Both {
    /// The authority's certificate, in DER.
    pub authority: Vec<u8>,
    /// The server's.
    pub server: Identity,
    /// The client's.
    pub client: Identity,
    /// The wish of both.
    pub encryption: Encryption,
}

impl Both {
    /// New ones.
    pub fn made(encryption: Encryption) -> Both {
        let key = || KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let of_authority = key();
        let authority = params.self_signed(&of_authority).expect("signed").der().to_vec();
        let issuer = Issuer::new(params, of_authority);
        let identity = |name: &str, purpose: Purpose| {
            let key = key();
            let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
            params.extended_key_usages = vec![purpose];
            let signed = params.signed_by(&key, &issuer).expect("signed").der().to_vec();
            Identity { chain: vec![signed.into(), authority.clone().into()], key: key.serialize_der().into() }
        };
        let (server, client) = (identity(NAME, Purpose::ServerAuth), identity("client", Purpose::ClientAuth));
        Both { authority, server, client, encryption }
    }
    /// The credentials of a server and of a client.
    pub fn credentials(&self, runtime: &Runtime) -> (Credentials, Credentials) {
        let Both { authority, server, client, encryption } = self;
        let clock = &runtime.clock;
        let server = Credentials::of_server(server, authority, Strangers::Refused, clock.clone());
        let client = Credentials::of_client(Some(client), Authority::Known(authority), clock.clone());
        (server.expect("good certificates").with(*encryption), client.expect("good certificates").with(*encryption))
    }
}

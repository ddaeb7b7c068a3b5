//! Certificates that are expired, foreign, revoked, or of another machine.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use super::double::told;
use super::site::Site;

/// The authority of a site, as `kumi border init` names it.
fn authority(folder: &Path) -> Issuer<'static, KeyPair> {
    let key = fs::read_to_string(folder.join("ca.key")).expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, "Kumihimo border authority");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Issuer::new(params, KeyPair::from_pem(&key).expect("a key"))
}

/// Replaces the certificate in a folder.
fn certify(at: &Path, issuer: &Issuer<'_, KeyPair>, change: impl FnOnce(&mut CertificateParams)) {
    let mut params = CertificateParams::new(vec!["build7".to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.use_authority_key_identifier_extension = true;
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    fs::write(at.join("border.pem"), certificate.pem()).expect("writable");
    fs::write(at.join("border.key"), key.serialize_pem()).expect("writable");
}

/// Asserts that `build8` names the reason for which it does not reach `build7`.
#[track_caller]
fn is_refused(site: &Site, why: &str) {
    let _borders = site.serve();
    site.until_listed(why);
    let (code, said, complaints) = site.here.kumi(&["ps", "--machine", "build7"]);
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(complaints.contains(why), "{complaints}");
}

#[test]
fn certificate_of_another_machine_is_refused() {
    let site = Site::new("border-other-name");
    let issuer = authority(&site.folder());
    certify(&site.other_folder(), &issuer, |params| {
        *params = CertificateParams::new(vec!["build9".to_owned()]).expect("a name");
    });
    is_refused(&site, "the certificate is that of build9 and not of build7");
}

#[test]
fn certificate_of_another_authority_is_refused_by_both_sides() {
    let site = Site::new("border-foreign");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, "another authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.not_before = date_time_ymd(2020, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let foreign = params.self_signed(&key).expect("a certificate").pem();
    certify(&site.other_folder(), &Issuer::new(params, key), |_| {});
    fs::write(site.other_folder().join("ca.pem"), &foreign).expect("writable");
    is_refused(&site, "the certificate is not of an authority of this site");
    // The server refuses a client that would accept it.
    let own = fs::read_to_string(site.folder().join("ca.pem")).expect("readable");
    fs::write(site.folder().join("ca.pem"), own + &foreign).expect("writable");
    is_refused(&site, "UnknownCA");
}

#[test]
fn expired_certificate_does_not_start() {
    let site = Site::new("border-expired");
    let issuer = authority(&site.folder());
    let expire = |params: &mut CertificateParams| params.not_after = date_time_ymd(2021, 1, 1);
    certify(&site.other_folder(), &issuer, expire);
    let config = site.other_folder();
    let command = ["border", "--config", config.to_str().expect("text")];
    let (code, said, complaints) = told(&site.there.command(&command).output().expect("kumi"));
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(complaints.contains("border.pem: the certificate has expired"), "{complaints}");
}

#[test]
fn revoked_certificate_is_refused() {
    let site = Site::new("border-revoked");
    let issuer = authority(&site.folder());
    let serial = SerialNumber::from(7);
    certify(&site.other_folder(), &issuer, |params| params.serial_number = Some(serial.clone()));
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2021, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: serial,
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer).expect("a list").pem().expect("PEM");
    fs::write(site.folder().join("revoked.pem"), list).expect("writable");
    is_refused(&site, "the certificate is revoked");
}

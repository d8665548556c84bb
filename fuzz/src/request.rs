//! Requests of the kernel: header, and what follows it.

use crate::targets::{Answer, answer};
use base::Ino;
use front::fuse::parse::{Ask, ask, header, umask};
use std::mem::discriminant;

/// `fuse_in_header`.
const HEADER_BYTES: usize = 40;
const ROOT: Ino = Ino(1 << 20 | 5);

/// A request: its code, and what follows the header.
fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(8u64.to_ne_bytes());
    bytes.extend((77u64 << 20).to_ne_bytes());
    [1000u32, 100, 7, 0].iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
    bytes.extend(body);
    bytes
}

/// One request of each kind; names where the kind has names (`fuse_kernel.h` has the codes).
pub fn seeds() -> Vec<Vec<u8>> {
    const TWO_NAMES: [u32; 3] = [6, 12, 45];
    let of = |opcode: u32| match opcode {
        1 | 10 | 11 | 24 => request(opcode, b"name\0"),
        _ if TWO_NAMES.contains(&opcode) => {
            let fixed: &[u8] = match opcode {
                6 => &[],
                12 => &[9, 0, 0, 0, 0, 0, 0, 0],
                _ => &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            };
            request(opcode, &[fixed, b"old\0new\0"].concat())
        }
        8 | 9 | 13 | 21 | 22 | 35 => request(
            opcode,
            &[&[0; 16][..if opcode == 9 || opcode == 13 || opcode == 22 { 8 } else { 16 }], b"user.name\0value"]
                .concat(),
        ),
        _ => request(opcode, &[0; 88]),
    };
    (1..=52).map(of).collect()
}

/// Parses as the front does. A write's payload comes apart: its length is the header's less the head's.
pub fn run(bytes: &[u8]) -> Answer {
    let mut fitted = bytes.to_vec();
    let length = (fitted.len() as u32).to_ne_bytes();
    if let Some(field) = fitted.get_mut(..4) {
        field.copy_from_slice(&length);
    }
    let _ = header(bytes, bytes.len());
    let read = header(&fitted, fitted.len());
    let Ok(found) = &read else { return answer(&read, |_| 0) };
    let body = &fitted[HEADER_BYTES..];
    let payload_bytes = body.len().saturating_sub(HEADER_BYTES);
    let asked = ask(found, body, payload_bytes, ROOT);
    let mask = umask(found.opcode, body);
    assert!(mask <= 0o7777, "a umask has permission bits");
    let shape = |asked: &Ask| {
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&discriminant(asked), &mut hasher);
        std::hash::Hasher::finish(&hasher)
    };
    answer(&asked, shape).rotate_left(found.opcode % 64)
}

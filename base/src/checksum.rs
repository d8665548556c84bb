//! CRC-32C (Castagnoli), the one checksum of every format: hardware-assisted on x86-64 and ARM.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Continues `crc` over `bytes`: `crc32c_append(crc32c(a), b) == crc32c(a ++ b)`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // A sum is stored inverted.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bitwise CRC-32C, straight from the polynomial (RFC 3720, B.4): checksums on disks were computed by other code
    /// too.
    fn slow(crc: u32, bytes: &[u8]) -> u32 {
        let shift = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        !bytes.iter().fold(!crc, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), shift))
    }

    #[test]
    fn it_is_the_sum_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn every_length_and_place_has_the_same_sum_as_bit_by_bit() {
        let bytes: Vec<u8> = (0..9000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let lengths = (0..700).chain([1000, 4092, 4095, 4096, 4097, 8191, 8192]);
        for length in lengths {
            for start in [0, 1, 7, 64] {
                let part = &bytes[start..start + length];
                assert_eq!(crc32c(part), slow(0, part), "{start} {length}");
                assert_eq!(crc32c_append(0x1234_5678, part), slow(0x1234_5678, part), "{start} {length}");
            }
        }
    }

    #[test]
    fn a_sum_goes_on_where_it_ended() {
        let bytes: Vec<u8> = (0..5000u32).map(|at| ((at * at) >> 3) as u8).collect();
        for cut in [0, 1, 15, 16, 100, 4096, 5000] {
            assert_eq!(crc32c_append(crc32c(&bytes[..cut]), &bytes[cut..]), crc32c(&bytes), "{cut}");
        }
    }
}

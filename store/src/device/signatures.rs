//! Other contents of a device, recognised by the marks that file systems, volume managers and partition tables leave at
//! its beginning. For messages only: data that is not recognised is foreign all the same.

/// Marks: where they lie, what they say, and whose they are. The first that fits is told.
const MARKS: [(usize, &[u8], &str); 18] = [
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x400, b"H+", "an HFS+ file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x36, b"FAT", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0, b"hsqs", "a SquashFS file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (512, b"LABELONE", "a physical volume of LVM"),
    (1536, b"LABELONE", "a physical volume of LVM"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a software RAID (md)"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (510, b"\x55\xaa", "a partition table or boot record (MBR)"),
];

/// The owner of data that begins with these bytes.
pub fn find(beginning: &[u8]) -> Option<&'static str> {
    let fits = |at: usize, mark: &[u8]| beginning.get(at..).is_some_and(|rest| rest.starts_with(mark));
    MARKS.iter().find(|(at, mark, _)| fits(*at, mark)).map(|(.., name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_told_and_nothing_else() {
        assert_eq!((find(&[]), find(&vec![0; 1 << 20]), find(&vec![7; 1 << 20])), (None, None, None));
        for (at, mark, name) in MARKS {
            let mut bytes = vec![0; 1 << 20];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(find(&bytes), Some(name));
            assert_eq!(find(&bytes[..at + mark.len() - 1]), None, "{name}: cut off");
        }
    }
}

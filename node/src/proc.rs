//! Texts of /proc that more than one part of the program reads.

/// Number of a block device: major and minor.
pub type Number = (u32, u32);

/// A block device's line of /proc/diskstats.
pub struct DiskLine<'a> {
    /// Its number.
    pub number: Number,
    /// Its name.
    pub name: &'a str,
    /// Its figures, in the order of Documentation/admin-guide/iostats.rst; None for what is no number.
    figures: Vec<Option<u64>>,
}

impl DiskLine<'_> {
    /// The figure at a place, if the kernel tells so many.
    pub fn figure(&self, place: usize) -> Option<u64> {
        self.figures.get(place).copied().flatten()
    }
}

/// The lines of /proc/diskstats; lines of another form are left out.
pub fn disk_lines(table: &str) -> impl Iterator<Item = DiskLine<'_>> {
    table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let number = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(DiskLine { number, name: words.next()?, figures: words.map(|word| word.parse().ok()).collect() })
    })
}

/// Bytes that a process has read from devices and written to them, by the text of its `io`.
pub fn moved_bytes(text: &str) -> Option<[u64; 2]> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    Some([field("read_bytes:")?, field("write_bytes:")?])
}

/// CPU time of all CPUs, in ticks.
#[derive(Clone, Copy)]
pub struct CpuTicks {
    /// All of it.
    pub all: u64,
    /// The part in which somebody worked.
    pub busy: u64,
    /// The part that a hypervisor took.
    pub stolen: u64,
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice` in the text of /proc/stat: the guests' time is in the
/// users'.
pub fn cpu_ticks(stat: &str) -> Option<CpuTicks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Option<Vec<u64>> = line.split_whitespace().take(8).map(|field| field.parse().ok()).collect();
    let ticks = ticks.filter(|ticks| ticks.len() == 8)?;
    let sum = |some: &[u64]| some.iter().copied().fold(0, u64::saturating_add);
    Some(CpuTicks { all: sum(&ticks), busy: sum(&ticks[..3]).saturating_add(sum(&ticks[5..7])), stolen: ticks[7] })
}

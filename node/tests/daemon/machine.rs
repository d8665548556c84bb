//! Machines: namespaces for networks, mounts and names, and nothing in common but the disks under their directories.

use super::{refused, sinter, system};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A machine.
pub struct Machine {
    /// The process that keeps its namespaces.
    keeper: Child,
}

impl Machine {
    fn new(name: &str) -> Machine {
        // Told by its line that all is there.
        let script = format!(
            "hostname {name} && mkdir -p /etc/sinter /run/sinter && mount -t tmpfs tmpfs /etc/sinter \
             && mount -t tmpfs tmpfs /run/sinter && mount -t tmpfs tmpfs /var/log && ip link set lo up \
             && echo there && exec sleep 3600"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--uts", "sh", "-c", &script]).stdout(Stdio::piped());
        let mut keeper = command.spawn().expect("util-linux is installed");
        let mut line = String::new();
        let out = keeper.stdout.take().expect("it was asked for");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("it speaks");
        assert_eq!(line, "there\n");
        Machine { keeper }
    }
    /// A program of this machine.
    pub fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--uts", "--target", &self.keeper.id().to_string()]).arg(name);
        command
    }
    pub fn sinter(&self) -> Command {
        self.program(sinter().get_program())
    }
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.sinter().args(arguments).stdin(Stdio::null()).output().expect("util-linux is installed")
    }
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
    pub fn fail(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        refused(&self.run(arguments), code, parts, &format!("{arguments:?}"));
    }
    /// A path as its processes see it.
    pub fn path(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(path.strip_prefix("/").expect("an absolute path"))
    }
    pub fn ip(&self, line: &str) {
        let status = self.program("ip").args(line.split(' ')).status().expect("iproute2 is installed");
        assert!(status.success(), "ip {line}");
    }
    /// The ports on which somebody waits for connections.
    pub fn ports(&self) -> Vec<String> {
        let output = self.program("ss").args(["-Hlntu"]).output().expect("iproute2 is installed");
        let told = String::from_utf8(output.stdout).expect("text");
        told.lines().filter_map(|line| line.split_whitespace().nth(4)).map(str::to_string).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Daemons in the background outlive a test that fails.
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = network(&self.keeper.id().to_string());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().into_string().unwrap_or_default();
            if own.is_some() && network(&pid) == own && pid != self.keeper.id().to_string() {
                drop(Command::new("kill").args(["-KILL", &pid]).status());
            }
        }
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

/// Machines of these names, each with a cable to one switch, at 10.77.0.1 and so on.
pub fn machines<const N: usize>(names: [&str; N]) -> [Machine; N] {
    let machines = names.map(Machine::new);
    // The first one's namespace has the switch beside its own cable. The switch answers no question for that machine's address: its own hardware
    // address changes when a machine goes, and those that had learned it would miss the first machine for a minute.
    let switch = &machines[0];
    switch.ip("link add name switch type bridge");
    switch.ip("link set switch arp off up");
    for (number, machine) in machines.iter().enumerate() {
        let (end, port) = (format!("v{}", machine.keeper.id()), format!("w{}", machine.keeper.id()));
        system("ip", &["link", "add", &end, "type", "veth", "peer", "name", &port]);
        system("ip", &["link", "set", &end, "netns", &machine.keeper.id().to_string()]);
        system("ip", &["link", "set", &port, "netns", &switch.keeper.id().to_string()]);
        machine.ip(&format!("link set {end} name cable"));
        machine.ip(&format!("addr add 10.77.0.{}/24 dev cable", number + 1));
        machine.ip("link set cable up");
        switch.ip(&format!("link set {port} master switch"));
        switch.ip(&format!("link set {port} up"));
    }
    machines
}

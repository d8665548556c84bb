//! Machines: namespaces for networks, mounts and names on this one, each with a cable to one switch; and what their networks lose.
//!
//! A cut needs no filter of packets: each machine knows all others' addresses on the link by entries that it never asks for, and one that is
//! replaced by an address that nobody has sends what is for that machine into the void, without a word to anybody. So each direction between
//! two machines can be cut by itself. A pulled cable is the switch's end of it, set down.
//!
//! Promises: all of a machine's processes end with the run. Absent by design: delays, and packets that are lost now and then.

use crate::flash::ground::{ended, told};
use crate::flash::undo::Undo;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The machines by name: the nodes', then the clients'. The positions are those of a cut.
pub const NAMES: [&str; NODES + CLIENTS] = ["n1", "n2", "n3", "desk1", "desk2"];
pub const NODES: usize = 3;
pub const CLIENTS: usize = 2;

/// Directions that are cut: from the first machine to the second, by position.
pub type Cut = Vec<(usize, usize)>;

/// A machine, kept by a process that sleeps in its namespaces.
pub struct Machine {
    keeper: Child,
}

impl Machine {
    /// Starts it.
    fn new(name: &str, undo: &Undo) -> Result<Machine, String> {
        // Told by its line that all is there.
        let script = format!(
            "hostname {name} && mkdir -p /etc/sinter /run/sinter && mount -t tmpfs tmpfs /etc/sinter \
             && mount -t tmpfs tmpfs /run/sinter && mount -t tmpfs tmpfs /var/log && ip link set lo up \
             && echo there && exec sleep infinity"
        );
        let failed =
            |how: &str| format!("the machine {name} can't be made (unshare of util-linux, ip of iproute2): {how}");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--uts", "sh", "-c", &script]);
        let spawned = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut keeper = spawned.map_err(|error| failed(&error.to_string()))?;
        let process = keeper.id();
        // Never this machine's own network: the keeper may have ended before it had one.
        let network = format!(
            "n=$(readlink /proc/{process}/ns/net) && [ \"$n\" != \"$(readlink /proc/self/ns/net)\" ] && for d in /proc/[0-9]*; do \
             [ \"$(readlink $d/ns/net)\" = \"$n\" ] && kill -9 ${{d#/proc/}}; done 2>/dev/null; {}",
            ended(process, 20)
        );
        undo.add(&network)?;
        let mut line = String::new();
        let out = keeper.stdout.take().expect("it was asked for");
        BufReader::new(out).read_line(&mut line).map_err(|error| failed(&error.to_string()))?;
        if line == "there\n" { Ok(Machine { keeper }) } else { Err(failed("see above")) }
    }
    /// A program in its namespaces.
    pub fn program(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--uts", "--target", &self.process()]).arg(program);
        command
    }
    /// A path as its processes see it.
    pub fn path(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.process()));
        root.join(path.strip_prefix("/").expect("an absolute path"))
    }
    fn process(&self) -> String {
        self.keeper.id().to_string()
    }
    /// Gives lines to `ip` there.
    fn ip(&self, lines: &[String]) -> Result<(), String> {
        let failed = |how: String| format!("ip -batch (iproute2): {how}; it was given: {}", lines.join("; "));
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.process(), "ip", "-batch", "-"]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut asked = spawned.map_err(|error| failed(error.to_string()))?;
        let mut input = asked.stdin.take().expect("it was asked for");
        let written = input.write_all((lines.join("\n") + "\n").as_bytes());
        drop(input);
        let status = written.and_then(|()| asked.wait()).map_err(|error| failed(error.to_string()))?;
        if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Whatever else runs there is ended by who cleans up.
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

/// The machines and their switch.
pub struct Network {
    machines: Vec<Machine>,
    switch: Machine,
}

/// The address of a machine on the network.
pub fn address(machine: usize) -> String {
    format!("10.77.0.{}", machine + 1)
}

/// The address of a machine on the link, or one that nobody has.
fn link_address(machine: usize, is_there: bool) -> String {
    format!("02:00:00:00:{}:{:02x}", if is_there { "00" } else { "ff" }, machine + 1)
}

/// The line that has a machine reach another one, or not.
fn reached(other: usize, is_reached: bool) -> String {
    format!("neigh replace {} lladdr {} nud permanent dev cable", address(other), link_address(other, is_reached))
}

impl Network {
    /// Makes the machines, which all reach each other.
    pub fn new(undo: &Undo) -> Result<Network, String> {
        let machines = NAMES.iter().map(|name| Machine::new(name, undo)).collect::<Result<Vec<Machine>, String>>()?;
        let switch = Machine::new("switch", undo)?;
        switch.ip(&["link add name switch type bridge".to_string(), "link set switch up".to_string()])?;
        for (at, machine) in machines.iter().enumerate() {
            let far = machine.process();
            switch.ip(&[
                format!("link add name {0} type veth peer name cable netns {far}", NAMES[at]),
                format!("link set {} master switch", NAMES[at]),
                format!("link set {} up", NAMES[at]),
            ])?;
            let mut lines = vec![
                format!("link set cable address {}", link_address(at, true)),
                format!("addr add {}/24 dev cable", address(at)),
                "link set cable up".to_string(),
            ];
            lines.extend((0..machines.len()).filter(|other| *other != at).map(|other| reached(other, true)));
            machine.ip(&lines)?;
        }
        Ok(Network { machines, switch })
    }
    /// A machine.
    pub fn machine(&self, at: usize) -> &Machine {
        &self.machines[at]
    }
    /// Cuts these directions, or lifts that.
    pub fn set(&self, cut: &Cut, is_cut: bool) -> Result<(), String> {
        for (at, machine) in self.machines.iter().enumerate() {
            let own = cut.iter().filter(|(from, _)| *from == at);
            let lines: Vec<String> = own.map(|(_, to)| reached(*to, !is_cut)).collect();
            if !lines.is_empty() {
                machine.ip(&lines)?;
            }
        }
        Ok(())
    }
    /// Pulls a machine's cable out, or puts it in.
    pub fn plug(&self, machine: usize, is_in: bool) -> Result<(), String> {
        self.switch.ip(&[format!("link set {} {}", NAMES[machine], if is_in { "up" } else { "down" })])
    }
}

/// Runs the product on a machine to its end; what it printed. Errors: it failed.
pub fn product(machine: &Machine, binary: &Path, arguments: &[&str]) -> Result<String, String> {
    let command = machine.program(binary);
    let words: Vec<&str> =
        command.get_args().filter_map(|word| word.to_str()).chain(arguments.iter().copied()).collect();
    told("nsenter", &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_an_address_that_nobody_has() {
        assert_eq!(reached(1, true), "neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 nud permanent dev cable");
        assert_eq!(reached(4, false), "neigh replace 10.77.0.5 lladdr 02:00:00:00:ff:05 nud permanent dev cable");
    }
}

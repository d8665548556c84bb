//! The turns of faults: when the next one is due, and what became of the last one.
//!
//! Promises: one cut, or one fault of disks, at a time. Absent by design: the choice of the fault.

use super::asked::Asked;
use super::cluster::Cluster;
use super::faults::{self, Fault};
use super::run::{NEVER, Run};
use super::{LOOK, WHOLE};
use runtime::random::SplitMix;
use std::time::Duration;

/// Pause between two questions whether all nodes are there.
const ASK: Duration = Duration::from_millis(250);

/// The turns of a run.
pub struct Turns<'a> {
    run: &'a Run,
    asked: &'a Asked,
    draw: SplitMix,
    /// The time from which the next fault is due, and that of the next look whether it may come.
    due: Duration,
    look: Duration,
    minute: u64,
    done: Vec<Fault>,
}

impl<'a> Turns<'a> {
    /// The turns of a run that begins.
    pub fn new(run: &'a Run, asked: &'a Asked) -> Turns<'a> {
        // Another sequence than that of the clients' seeds.
        let (draw, every) = (SplitMix(!asked.seed), asked.every);
        Turns { run, asked, draw, due: every, look: every, minute: 1, done: Vec::new() }
    }
    /// Does faults until their number or the time is over, or something is found.
    pub fn done(mut self, cluster: &mut Cluster<'_>) -> Vec<Fault> {
        while self.go_on(cluster) {
            if let Err(how) = self.turn(cluster) {
                self.run.wrong(how);
                break;
            }
            self.tell_minute();
            std::thread::sleep(LOOK);
        }
        if !self.run.is_clean() {
            eprintln!("{}", cluster.in_words());
        }
        self.done
    }
    /// True unless it is over; the last fault has its time too.
    fn go_on(&self, cluster: &Cluster<'_>) -> bool {
        let is_enough = self.is_enough() && !cluster.is_harmed() && self.run.now() >= self.due;
        self.run.goes_on() && self.run.now() < self.asked.time && !is_enough && !self.run.notices_hung(NEVER)
    }
    fn is_enough(&self) -> bool {
        self.asked.count.is_some_and(|count| self.done.len() as u64 >= count)
    }
    /// Goes on with what was done, and does what is due.
    fn turn(&mut self, cluster: &mut Cluster<'_>) -> Result<(), String> {
        cluster.tend()?;
        self.take_outcome(cluster)?;
        cluster.tend_disks(self.run)?;
        let now = self.run.now();
        if now < self.look || cluster.is_harmed() || self.is_enough() {
            return Ok(());
        }
        // Clients that wait since the last fault would never go on if the next one came as soon as the nodes are there.
        let waits = self.done.last().is_some_and(|last| self.run.waits_since(last.at));
        let seats = if self.asked.is_patient {
            cluster.whole().filter(|_| !waits)
        } else {
            Some(cluster.seats().unwrap_or_default())
        };
        let Some(seats) = seats else {
            let waited = now.saturating_sub(self.due);
            self.look = now + ASK;
            return match waited > WHOLE {
                true => Err(format!(
                    "not all nodes are there, or clients still wait, {waited:?} after a fault: {}",
                    cluster.in_words()
                )),
                false => Ok(()),
            };
        };
        let fault = faults::next(self.run, cluster, &mut self.draw, (&self.asked.shares, seats))?;
        self.due = if self.asked.is_patient { self.run.now() } else { self.due } + self.asked.every;
        self.look = self.due;
        fault.iter().for_each(|fault| eprintln!("{:.1} s: {}", fault.at.as_secs_f64(), fault.told));
        self.done.extend(fault);
        Ok(())
    }
    /// Gives the outcome of a cut that is over to its fault, the last one.
    fn take_outcome(&mut self, cluster: &mut Cluster<'_>) -> Result<(), String> {
        if let (Some(outcome), Some(last)) = (cluster.tend_cut()?, self.done.last_mut()) {
            let led_on = outcome.led_on.map(|time| format!("; it led on for {} ms", time.as_millis()));
            let leader = if outcome.is_kept { "the same leader and term" } else { "another leader or term" };
            let now = self.run.now().as_secs_f64();
            eprintln!("{now:.1} s: the cut is over: {leader}{}", led_on.unwrap_or_default());
            last.outcome = Some(outcome);
        }
        Ok(())
    }
    fn tell_minute(&mut self) {
        if self.run.now().as_secs() / 60 >= self.minute {
            let (minute, (calls, longest)) = (self.minute, self.run.calls());
            let (longest, faults) = (longest.as_secs_f64(), self.done.len());
            eprintln!(
                "minute {minute}: {calls} calls, the longest took {longest:.1} s, {faults} faults, nothing wrong"
            );
            self.minute += 1;
        }
    }
}

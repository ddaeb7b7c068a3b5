//! Conversion of a spool to a file for Perfetto.
//!
//! States are drawn exactly as recorded. If two VPs claim to run one microprocess at the same time,
//! its track has two overlapping slices, which the checker reports. Such contradictions are removed
//! only if records were lost, because nothing can be concluded then.

mod cores;

use std::collections::HashMap;
use std::io::{self, Write};

use kumihimo_resource::id::{Printed, Serial};

use crate::capture::record::{self, Cause, Kind, NO_LEVEL, Record, WAIT_KERNEL, WAITS};
use crate::format::names::{
    self, ASKED, BOARD, BOARD_ID, CARRIES, CHANGED, COUNT, ENDED, FIRST_SUM, FOR, GIVEN, HOLDER,
    ID, IDLE, LEVEL, LOCK, LOST, MICROS_GROUP, Name, OVERRIDDEN, OWN_PRIORITY, PREEMPTED, PRIORITY,
    PROCESS, PUT, RESUMED, ROW, SENT, SETTLED, SETTLES, SPAWNED, SUMMARY, State, Summary, THREAD,
    THREADS_GROUP, UNBLOCKED, VP, VPS_GROUP, WAITS_FOR_VP, WHO, WHY, WRITER,
};
use crate::format::packets::{NameRef, Packets, Value};
use crate::format::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};
use crate::spool::{Entry, MOST_VPS, OUTSIDE, Spool};
use cores::Cores;

/// Converts `spool`. `lost`: number of records that did not reach the spool.
///
/// # Errors
/// Returns the error of reading or writing.
pub fn convert(spool: &Spool, out: impl Write, lost: u64) -> io::Result<Summary> {
    let mut export = Export::new(spool, Packets::new(out, spool.header.offset));
    // Determined in advance: a loss is recorded only when a later record finds room, and other VPs
    // may record its consequences before that.
    export.lossy = lost > 0 || spool.has_losses()?;
    for entry in spool.entries() {
        let entry = entry?;
        let at = spool.scale.nanoseconds(entry.record.time);
        export.packets.now = export.packets.now.max(at);
        export.take(entry);
        export.packets.pass_on()?;
    }
    export.end(lost)
}

fn slot(id: u64) -> u32 {
    Serial::from_bits(id).slot()
}

/// The known state of a microprocess. Indexed by slot; successive microprocesses in a slot have
/// different IDs.
#[derive(Debug)]
struct Micro {
    id: u64,
    track: u64,
    label: String,
    priority: u8,
    level: u8,
    state: Option<State>,
    /// The VP on which the microprocess runs or is queued.
    vp: u32,
    /// Number of open slices on its track; more than one is a contradiction.
    open: u32,
    /// The microprocess has not been in any state yet.
    fresh: bool,
}

#[derive(Debug)]
struct Vp {
    track: u64,
    current: Option<u64>,
    open: bool,
    thread: Option<u32>,
    /// The lock that the running microprocess is about to wait for, and its holder.
    lock: Vec<(Name, Value)>,
}

#[derive(Debug)]
struct Thread {
    track: u64,
    open: Option<Name>,
    vp: Option<usize>,
}

struct Export<W> {
    packets: Packets<W>,
    process: u64,
    threads_group: u64,
    micros_group: u64,
    vps: Vec<Vp>,
    threads: HashMap<u32, Thread>,
    micros: HashMap<u32, Micro>,
    cores: Cores,
    summary: Summary,
    lossy: bool,
}

fn number(n: impl Into<u64>) -> Value {
    Value::Number(n.into())
}

impl<W: Write> Export<W> {
    fn new(spool: &Spool, mut packets: Packets<W>) -> Export<W> {
        let about = |key: &str| {
            spool.header.about.iter().find_map(|(k, v)| (k == key).then_some(v.as_str()))
        };
        let process = packets.process(spool.header.pid, about("program").unwrap_or("?"));
        let vps_group = packets.track(VPS_GROUP, Some(process), 0);
        let threads_group = packets.track(THREADS_GROUP, Some(process), 1);
        let micros_group = packets.track(MICROS_GROUP, Some(process), 2);
        // A corrupt header must not create a million tracks.
        let vps = (0..spool.header.vps.min(MOST_VPS)).map(|i| Vp {
            track: packets.track(&format!("VP {i}"), Some(vps_group), i.cast_signed()),
            current: None,
            open: false,
            thread: None,
            lock: Vec::new(),
        });
        let vps: Vec<Vp> = vps.collect();
        let summary = Summary { vps: vps.len() as u64, ..Summary::default() };
        let (threads, micros) = Default::default();
        let row = about("row").and_then(|row| row.parse().ok());
        if let (Some(board), Some(row)) = (about("board"), row) {
            let arguments =
                [(BOARD_ID, board.into()), (ROW, number(row)), (PROCESS, number(spool.header.pid))];
            packets.event(process, INSTANT, NameRef::By(BOARD), &arguments);
        }
        let cores = Cores::of(row);
        Export {
            packets,
            process,
            threads_group,
            micros_group,
            vps,
            threads,
            micros,
            cores,
            summary,
            lossy: false,
        }
    }

    fn take(&mut self, Entry { writer, record, name }: Entry) {
        self.summary.records += 1;
        let vp = writer as usize;
        let on_vp = writer != OUTSIDE && vp < self.vps.len();
        match record.kind {
            Kind::Spawn => self.spawned(&record, name),
            Kind::Ready => self.ready(&record),
            Kind::Unblocked => self.unblocked(&record),
            Kind::Priority => self.priority(&record),
            Kind::WentOn => self.enter(record.id, State::Unbound, &[(THREAD, number(record.arg))]),
            Kind::StickyBegin => self.sticks(&record),
            Kind::StickyEnd => {
                self.enter(record.id, State::Unbound, &[(THREAD, number(record.arg))])
            }
            Kind::Pooled => self.thread_is(record.arg, None, None, &[]),
            Kind::Lost => self.lost(&record, on_vp.then_some(vp)),
            Kind::Sent => self.sent(SENT, &record, Some(record.level)),
            Kind::Put => self.sent(PUT, &record, None),
            Kind::Held => self.parked(record.id, record.wait, Vec::new()),
            Kind::Overridden => {
                if let Some(vp) = self.vps.get(record.arg as usize) {
                    self.packets.event(vp.track, INSTANT, NameRef::By(OVERRIDDEN), &[]);
                }
            }
            Kind::Name => {}
            // All other kinds belong to a VP.
            _ if !on_vp => {}
            Kind::Switch => self.switch(vp, &record),
            Kind::WaitsFor => self.vps[vp].lock = vec![(LOCK, number(record.id))],
            Kind::HeldBy => self.held_by(vp, &record),
            Kind::Runs => self.run(vp, &record),
            Kind::Blocked => self.blocked(vp, &record),
            Kind::Carried => self.carried(vp, &record),
            Kind::IdleBegin => {
                self.close_vp(vp);
                self.open_vp(vp, NameRef::By(IDLE), &[]);
            }
            Kind::IdleEnd => self.close_vp(vp),
            Kind::Settles => {
                self.packets.event(self.vps[vp].track, INSTANT, NameRef::By(SETTLES), &[])
            }
            Kind::Settled => self.settled(vp, &record),
            Kind::Asked | Kind::Leaves | Kind::Slot => {
                self.cores.take(&mut self.packets, self.process, self.vps[vp].track, &record);
            }
            Kind::Told => {
                for (bit, name) in [(1, PREEMPTED), (2, CHANGED)] {
                    if record.arg & bit != 0 {
                        self.packets.event(self.vps[vp].track, INSTANT, NameRef::By(name), &[]);
                    }
                }
            }
        }
    }

    /// Returns the microprocess with this ID, which replaces an earlier one in the same slot.
    fn micro(&mut self, id: u64) -> &mut Micro {
        self.known(id, None)
    }

    fn known(&mut self, id: u64, name: Option<&str>) -> &mut Micro {
        let slot = slot(id);
        if self.micros.get(&slot).is_none_or(|micro| micro.id != id) {
            if let Some(former) = self.micros.remove(&slot) {
                self.close(&former);
            }
            let label = name.map_or_else(
                || format!("#{}", Printed(id)),
                |name| format!("{name} #{}", Printed(id)),
            );
            let track = self.packets.track(&label, Some(self.micros_group), 0);
            let micro = Micro {
                id,
                track,
                label,
                priority: NO_LEVEL,
                level: NO_LEVEL,
                state: None,
                vp: 0,
                open: 0,
                fresh: true,
            };
            self.micros.insert(slot, micro);
        }
        self.micros.get_mut(&slot).expect("inserted above")
    }

    fn close(&mut self, micro: &Micro) {
        for _ in 0..micro.open {
            self.packets.event(micro.track, SLICE_END, NameRef::Nothing, &[]);
        }
    }

    /// Ends the slice of the microprocess's current state.
    fn leave(&mut self, id: u64) {
        let micro = self.micro(id);
        micro.state = None;
        if micro.open > 0 {
            micro.open -= 1;
            let track = micro.track;
            self.packets.event(track, SLICE_END, NameRef::Nothing, &[]);
        }
    }

    /// Changes the state of the microprocess to `state`.
    fn enter(&mut self, id: u64, state: State, arguments: &[(Name, Value)]) {
        self.leave(id);
        self.begin(id, state, arguments);
    }

    fn begin(&mut self, id: u64, state: State, arguments: &[(Name, Value)]) {
        let micro = self.micro(id);
        micro.state = Some(state);
        micro.fresh = false;
        micro.open += 1;
        let (track, level, priority) = (micro.track, micro.level, micro.priority);
        let mut all = arguments.to_vec();
        for (name, value) in [(LEVEL, level), (OWN_PRIORITY, priority)] {
            if value != NO_LEVEL {
                all.push((name, number(value)));
            }
        }
        self.packets.event(track, SLICE_BEGIN, NameRef::By(state as Name), &all);
    }

    fn spawned(&mut self, record: &Record, name: Option<String>) {
        self.summary.spawned += 1;
        let micro = self.known(record.id, name.as_deref());
        micro.priority = record.level;
        let track = micro.track;
        let arguments = [(ID, number(record.id)), (OWN_PRIORITY, number(record.level))];
        self.packets.event(track, INSTANT, NameRef::By(SPAWNED), &arguments);
    }

    fn ready(&mut self, record: &Record) {
        let lost = self.lossy;
        let micro = self.micro(record.id);
        // Recorded twice: by the VP that the microprocess left, and by the queue.
        if micro.state == Some(State::Ready)
            && micro.vp == record.arg
            && micro.level == record.level
        {
            return;
        }
        let contradiction = micro.state == Some(State::Running) && !lost;
        // A thread outside all VPs that hands a microprocess to a VP records no cause.
        let why = if micro.fresh { Cause::Spawned } else { Cause::from_number(record.cause) };
        micro.level = record.level;
        micro.vp = record.arg;
        if !contradiction {
            self.leave(record.id);
        }
        self.begin(record.id, State::Ready, &[(VP, number(record.arg)), (WHY, why.name().into())]);
    }

    fn switch(&mut self, vp: usize, record: &Record) {
        self.summary.switches += 1;
        self.put_away(vp, record);
        self.close_vp(vp);
        if record.id != 0 {
            self.runs(vp, record);
        }
    }

    /// Records the new state of the microprocess that leaves the VP.
    fn put_away(&mut self, vp: usize, record: &Record) {
        let lock = std::mem::take(&mut self.vps[vp].lock);
        let Some(id) = self.vps[vp].current.take() else { return };
        let cause = Cause::from_number(record.cause);
        match cause {
            Cause::Parked => self.parked(id, record.wait, lock),
            Cause::Ended => {
                self.summary.ended += 1;
                self.leave(id);
                let track = self.micro(id).track;
                self.packets.event(track, INSTANT, NameRef::By(ENDED), &[]);
            }
            _ => {
                self.micro(id).vp = vp as u32;
                self.enter(
                    id,
                    State::Ready,
                    &[(VP, number(vp as u64)), (WHY, cause.name().into())],
                );
            }
        }
    }

    fn parked(&mut self, id: u64, wait: u8, lock: Vec<(Name, Value)>) {
        let wait = WAITS.get(usize::from(wait)).unwrap_or(&"?");
        let mut arguments = vec![(FOR, (*wait).into())];
        arguments.extend(lock);
        self.enter(id, State::Parked, &arguments);
    }

    /// Keeps the holder of a lock for the switch that follows.
    fn held_by(&mut self, vp: usize, record: &Record) {
        let holder = match record.id {
            0 => format!("kernel thread {}", record.arg),
            id => self.label(id),
        };
        // Without its lock, which was lost, the record says nothing.
        if self.vps[vp].lock.len() == 1 {
            self.vps[vp].lock.push((HOLDER, holder.as_str().into()));
        }
    }

    /// Handles a microprocess that runs without a switch.
    fn run(&mut self, vp: usize, record: &Record) {
        if let Some(id) = self.vps[vp].current.take() {
            self.leave(id);
        }
        self.close_vp(vp);
        self.runs(vp, record);
        if let Some(thread) = self.vps[vp].thread {
            self.thread_is(thread, Some(CARRIES), Some(vp), &[(VP, number(vp as u64))]);
        }
    }

    fn runs(&mut self, vp: usize, record: &Record) {
        let lost = self.lossy;
        let micro = self.micro(record.id);
        let contradiction = micro.state == Some(State::Running) && !lost;
        micro.level = record.level;
        micro.vp = vp as u32;
        let (label, priority) = (micro.label.clone(), micro.priority);
        if !contradiction {
            self.leave(record.id);
        }
        self.begin(record.id, State::Running, &[(VP, number(vp as u64))]);
        self.vps[vp].current = Some(record.id);
        let mut arguments = vec![(LEVEL, number(record.level))];
        if priority != NO_LEVEL {
            arguments.push((OWN_PRIORITY, number(priority)));
        }
        self.open_vp(vp, NameRef::Text(&label), &arguments);
    }

    fn blocked(&mut self, vp: usize, record: &Record) {
        let (track, thread) = (self.vps[vp].track, self.vps[vp].thread);
        let wait = *WAITS.get(usize::from(record.wait)).unwrap_or(&"?");
        self.close_vp(vp);
        let mut arguments = vec![(FOR, wait.into())];
        if let Some(id) = self.vps[vp].current.take() {
            self.summary.blocked += 1;
            let label = self.micro(id).label.clone();
            let mut own = arguments.clone();
            own.extend(thread.map(|thread| (THREAD, number(thread))));
            self.enter(id, State::Blocked, &own);
            arguments.push((WHO, label.as_str().into()));
            if let Some(thread) = thread {
                self.thread_is(thread, Some(State::Blocked as Name), None, &arguments);
            }
        }
        self.packets.event(track, INSTANT, NameRef::By(State::Blocked as Name), &arguments);
    }

    fn unblocked(&mut self, record: &Record) {
        self.summary.unblocked += 1;
        // The microprocess can return before the thread that took its VP records that.
        if let Some(vp) = self.vps.iter().position(|vp| vp.current == Some(record.id)) {
            self.blocked(vp, &Record { wait: WAIT_KERNEL, ..Record::new(Kind::Blocked) });
        }
        let micro = self.micro(record.id);
        let (track, label) = (micro.track, micro.label.clone());
        self.packets.event(track, INSTANT, NameRef::By(UNBLOCKED), &[(THREAD, number(record.arg))]);
        self.thread_is(record.arg, Some(WAITS_FOR_VP), None, &[(WHO, label.as_str().into())]);
    }

    fn sticks(&mut self, record: &Record) {
        // As in `unblocked`, the record of the thread that took the VP may be missing.
        if let Some(vp) = self.vps.iter().position(|vp| vp.current == Some(record.id)) {
            self.blocked(vp, &Record { wait: WAIT_KERNEL, ..Record::new(Kind::Blocked) });
        }
        self.enter(record.id, State::Sticky, &[(THREAD, number(record.arg))]);
    }

    fn carried(&mut self, vp: usize, record: &Record) {
        self.summary.hand_overs += 1;
        // The microprocess that ran on this VP left without a record.
        if self.vps[vp].current.is_some() {
            self.blocked(vp, &Record { wait: WAIT_KERNEL, ..Record::new(Kind::Blocked) });
        }
        if Cause::from_number(record.cause) == Cause::Woken {
            let arguments = [(THREAD, number(record.arg))];
            self.packets.event(self.vps[vp].track, INSTANT, NameRef::By(RESUMED), &arguments);
        }
        if let Some(former) = self.vps[vp].thread.replace(record.arg)
            && former != record.arg
            && self.threads.get(&former).is_some_and(|thread| thread.vp == Some(vp))
        {
            self.thread_is(former, None, None, &[]);
        }
        self.thread_is(record.arg, Some(CARRIES), Some(vp), &[(VP, number(vp as u64))]);
    }

    fn priority(&mut self, record: &Record) {
        let micro = self.micro(record.id);
        micro.priority = record.cause;
        let mut arguments = vec![(OWN_PRIORITY, number(record.cause))];
        if record.level != NO_LEVEL {
            micro.level = record.level;
            arguments.push((LEVEL, number(record.level)));
        }
        let track = micro.track;
        self.packets.event(track, INSTANT, NameRef::By(PRIORITY), &arguments);
    }

    /// Returns the name of a microprocess. Steps are recorded late. A later microprocess in the
    /// same slot must not be confused with this one, and this one must not appear as new.
    fn label(&self, id: u64) -> String {
        let known = self.micros.get(&slot(id)).filter(|micro| micro.id == id);
        known.map_or_else(|| format!("#{}", Printed(id)), |micro| micro.label.clone())
    }

    fn settled(&mut self, vp: usize, record: &Record) {
        let mut arguments = Vec::new();
        if record.level != NO_LEVEL {
            arguments.extend([
                (LEVEL, number(record.level)),
                (WHO, self.label(record.id).as_str().into()),
            ]);
        }
        arguments.extend(record.wait.checked_sub(1).map(|level| (names::WAITS, number(level))));
        for (bit, name) in [(record::GIVEN, GIVEN), (record::ASKED, ASKED)] {
            if record.cause & bit != 0 {
                arguments.push((name, number(1u64)));
            }
        }
        self.packets.event(self.vps[vp].track, INSTANT, NameRef::By(SETTLED), &arguments);
    }

    /// Records an event on the track of the VP that the record names.
    fn sent(&mut self, name: Name, record: &Record, level: Option<u8>) {
        let Some(track) = self.vps.get(record.arg as usize).map(|vp| vp.track) else { return };
        let mut arguments =
            vec![(ID, number(record.id)), (WHO, self.label(record.id).as_str().into())];
        arguments.extend(level.map(|level| (LEVEL, number(level))));
        self.packets.event(track, INSTANT, NameRef::By(name), &arguments);
    }

    /// Closes all states of `vp`, whose actions during the loss are unknown.
    fn lost(&mut self, record: &Record, vp: Option<usize>) {
        self.summary.records -= 1;
        self.summary.lost = self.summary.lost.saturating_add(record.id);
        let writer: Value = vp.map_or("no VP".into(), |vp| format!("VP {vp}").as_str().into());
        self.packets.event(
            self.process,
            INSTANT,
            NameRef::By(LOST),
            &[(COUNT, number(record.id)), (WRITER, writer)],
        );
        if let Some(vp) = vp {
            if let Some(id) = self.vps[vp].current.take() {
                self.leave(id);
            }
            self.close_vp(vp);
        }
    }

    fn close_vp(&mut self, vp: usize) {
        let vp = &mut self.vps[vp];
        if std::mem::take(&mut vp.open) {
            self.packets.event(vp.track, SLICE_END, NameRef::Nothing, &[]);
        }
    }

    fn open_vp(&mut self, vp: usize, called: NameRef<'_>, arguments: &[(Name, Value)]) {
        let vp = &mut self.vps[vp];
        vp.open = true;
        self.packets.event(vp.track, SLICE_BEGIN, called, arguments);
    }

    /// Changes the activity of kernel thread `tid`.
    fn thread_is(
        &mut self,
        tid: u32,
        what: Option<Name>,
        vp: Option<usize>,
        arguments: &[(Name, Value)],
    ) {
        let (packets, group) = (&mut self.packets, self.threads_group);
        let thread = self.threads.entry(tid).or_insert_with(|| Thread {
            track: packets.track(&format!("kernel thread {tid}"), Some(group), tid.cast_signed()),
            open: None,
            vp: None,
        });
        if thread.open == what && thread.vp == vp {
            return;
        }
        if thread.open.is_some() {
            packets.event(thread.track, SLICE_END, NameRef::Nothing, &[]);
        }
        (thread.open, thread.vp) = (what, vp);
        if let Some(name) = what {
            packets.event(thread.track, SLICE_BEGIN, NameRef::By(name), arguments);
        }
    }

    fn end(mut self, lost: u64) -> io::Result<Summary> {
        if lost > 0 {
            self.summary.records += 1;
            self.lost(&Record { id: lost, ..Record::new(Kind::Lost) }, None);
        }
        for micro in std::mem::take(&mut self.micros).into_values() {
            self.close(&micro);
        }
        (0..self.vps.len()).for_each(|vp| self.close_vp(vp));
        let threads: Vec<u32> = self.threads.keys().copied().collect();
        threads.into_iter().for_each(|tid| self.thread_is(tid, None, None, &[]));
        self.cores.end(&mut self.packets);
        let sums: Vec<_> =
            (FIRST_SUM..).zip(self.summary.numbers()).map(|(name, n)| (name, number(n))).collect();
        self.packets.event(self.process, INSTANT, NameRef::By(SUMMARY), &sums);
        self.packets.flush()?;
        Ok(self.summary)
    }
}

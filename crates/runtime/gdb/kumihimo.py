"""gdb commands for programs that use the Kumihimo runtime: live processes, or core files (of the kernel or of `kumi core`).

  kumi microprocesses          list all microprocesses: ID, name, state, priority
  kumi backtrace ID|all        print the backtrace of one microprocess (by ID, or by a unique name), or of all
  kumi select ID               make bt, up, frame and info locals show that microprocess
  kumi select                  make them show the selected kernel thread again
  kumi core FILE               write a core file as `generate-core-file FILE` does, including the microprocesses

Load the script with `source kumihimo.py`. Programs built with debug information contain it in `.debug_gdb_scripts`: for
those, `add-auto-load-safe-path PROGRAM` is enough. The script needs the symbol KUMIHIMO_DEBUG (not stripped), and debug
information only for names and lines in backtraces. It reads memory and registers and writes none.

Loading the script makes gdb neither stop at a SIGTRAP of the kernel's half nor pass it to the program. (The
kernel's half sends some if gdb was attached later.) The runtime then detects the reported event itself, later.
Breakpoints are not affected. Never let gdb pass SIGTRAP to the program: gdb then also passes the SIGTRAPs of its own
breakpoints, which end any program (gdb 13).
"""

import re
import struct

import gdb
import gdb.unwinder

VERSION = 4
FREE, LIVE, PARKED, DONE, ABANDONED, SUSPENDED = range(6)
PERMIT, CANCELLED, SUSPEND_REQUESTED = 8, 16, 32
GENERATION_SHIFT = 8
LENT = 2
TIMED, KIND = 0x80, 0x1F
NO_INHERITANCE = 0xFF
# Wait::encode in microprocess/wait_reason.rs. Braces are replaced by the object, {id} by the object as an ID.
WAITS = {
    1: "an unpark",
    2: "the clock",
    3: "the end of microprocess {id}",
    4: "the mutex at {:#x}",
    5: "the rwlock at {:#x}",
    6: "the condition variable at {:#x}",
    7: "the barrier at {:#x}",
    8: "the initialisation at {:#x}",
    9: "the semaphore at {:#x}",
    10: "the channel at {:#x}",
    11: "one of several channels",
    12: "a message at {:#x}",
    13: "descriptor {}",
    14: "the end of its scope's children",
    15: "a blocking call",
    16: "its batch of system calls",
    17: "a future",
    18: "the futex at {:#x}",
    19: "one of several descriptors",
    20: "a gate",
    21: "a signal",
    22: "the mutex at {:#x}",
    23: "the rwlock at {:#x}",
    24: "the spinlock at {:#x}",
}
RECORD = "context fs state priority inherited level wait_kind wait_object home class slot_end label_len label waits_on newer saved"
THREAD = "this vp current token slot fs"
MOST_FRAMES = 200


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def word(address):
    return struct.unpack("<Q", read(address, 8))[0]


def half(address):
    return struct.unpack("<I", read(address, 4))[0]


def register(frame, name):
    # Some registers have a pointer type.
    return int(frame.read_register(name).cast(number(0).type)) & 0xFFFF_FFFF_FFFF_FFFF


def number(value):
    """Convert to a gdb value of 64 bits. (A conversion by type name would depend on the language.)"""
    kind = gdb.selected_inferior().architecture().integer_type(64, False)
    return gdb.Value(struct.pack("<Q", value), kind)


def symbol_address(name):
    """Return the address of a symbol, from the symbol table alone."""
    language = gdb.parameter("language")
    gdb.execute("set language c", to_string=True)
    try:
        return int(gdb.parse_and_eval("(unsigned long)&" + name))
    except gdb.error:
        return None
    finally:
        gdb.execute("set language " + language, to_string=True)


def printed(bits):
    """Format an ID (crates/resource/src/id.rs)."""
    if bits >> 63:
        return "kernel-thread.%d" % (bits & 0x7FFF_FFFF_FFFF_FFFF)
    machine, space = bits >> 61 & 3, bits >> 49 & 0xFFF
    return "%s%d.microprocess.%d.%d" % ("%d/" % machine if machine else "", space, bits >> 23 & 0x1F_FFFF, bits & 0x7F_FFFF)


class Root:
    """The runtime's `Root` (crates/runtime/src/observe/debug.rs)."""

    def __init__(self):
        at = symbol_address("KUMIHIMO_DEBUG")
        if at is None:
            raise gdb.GdbError("kumi: no symbol KUMIHIMO_DEBUG: the program does not use Kumihimo, or is stripped")
        try:
            magic, version, size = struct.unpack("<8sII", read(at, 16))
        except gdb.MemoryError:
            raise gdb.GdbError("kumi: no memory to read: start the program or load a core file")
        if magic != b"KUMIDBG\0" or version != VERSION:
            raise gdb.GdbError("kumi: the program's records have version %d, this script supports %d" % (version, VERSION))
        data = read(at, size)
        prefix_at, oldest_at, self.first_step = struct.unpack_from("<QQQ", data, 16)
        # 0 in a program that has not started: not relocated yet.
        self.prefix, self.oldest = (word(at) if at else 0 for at in (prefix_at, oldest_at))
        self.slot_sizes = struct.unpack_from("<16Q", data, 40)
        names = RECORD.split()
        offset = 40 + 128
        self.record = dict(zip(names, struct.unpack_from("<%dI" % len(names), data, offset)))
        offset += 4 * len(names)
        names = THREAD.split()
        self.thread = dict(zip(names, struct.unpack_from("<%dI" % len(names), data, offset)))
        offset += 4 * len(names)
        self.vp_index, self.vp_left_by, self.slot_vp, self.slot_tid, self.slot_state = struct.unpack_from("<5I", data, offset)
        # Number of bytes to read per record.
        self.record_size = max(self.record.values()) + 64


class Microprocess:
    def __init__(self, root, at):
        o, data = root.record, read(at, root.record_size)
        q = lambda name: struct.unpack_from("<Q", data, o[name])[0]
        b = lambda name: data[o[name]]
        self.root, self.at = root, at
        self.context, self.newer, self.waits_on = q("context"), q("newer"), q("waits_on")
        state = q("state")
        self.phase, self.flags, generation = state & 7, state, state >> GENERATION_SHIFT
        self.id = printed(root.prefix | generation)
        self.priority, self.inherited, self.level = b("priority"), b("inherited"), b("level")
        self.wait_kind, self.wait_object = b("wait_kind"), q("wait_object")
        self.home = struct.unpack_from("<H", data, o["home"])[0]
        end, size = q("slot_end"), root.slot_sizes[b("class") & 15]
        self.stack, self.stack_end = range(end - size, at), end
        length = min(b("label_len"), 47)
        self.name = data[o["label"] : o["label"] + length].decode("utf-8", "replace")
        self.thread = None

    def lives(self):
        return self.phase in (LIVE, PARKED, SUSPENDED, ABANDONED)

    def waits_for(self):
        text = WAITS.get(self.wait_kind & KIND)
        if text is None:
            return "nothing known"
        return text.format(self.wait_object, id=printed(self.wait_object)) + (", with a deadline" if self.wait_kind & TIMED else "")

    def describe(self, threads):
        if self.thread is not None:
            return self.thread.describe()
        if self.phase == PARKED:
            return "waits for " + self.waits_for()
        if self.phase == SUSPENDED:
            return "suspended until it is resumed"
        if self.phase == ABANDONED:
            return "left behind by a runtime that ended, waits for " + self.waits_for()
        if self.context == 0:
            for t in threads:
                if t.at == self.waits_on:
                    return "waits for its turn on kernel thread %d" % t.lwp
        if self.has_not_begun():
            return "queued, has not begun (VP %d)" % self.home
        return "queued (VP %d)" % self.home

    def has_not_begun(self):
        try:
            return self.context != 0 and word(self.context + 24) == self.root.first_step
        except gdb.MemoryError:
            return False

    def priority_text(self):
        text = str(self.priority)
        if self.inherited != NO_INHERITANCE and self.inherited > self.priority:
            text += " (inherits %d)" % self.inherited
        return text


class KernelThread:
    """A kernel thread of the runtime, with its VP and stack pointer."""

    def __init__(self, root, thread, at, stack_pointer):
        o = root.thread
        self.gdb_thread, self.at, self.lwp = thread, at, thread.ptid[1] or thread.ptid[2]
        self.vp, self.current = word(at + o["vp"]), word(at + o["current"])
        self.stack_pointer = stack_pointer
        token = word(at + o["token"])
        try:
            in_slot = word(word(at + o["slot"]) + root.slot_vp)
        except gdb.MemoryError:
            # The shared page may be a BPF map, which core files do not contain.
            in_slot = None
        self.carries = self.vp != 0 and in_slot == token
        self.unknown = self.vp != 0 and in_slot is None
        self.lent = self.vp != 0 and in_slot == token | LENT
        self.vp_index = half(self.vp + root.vp_index) if self.vp else None

    def candidates(self, root):
        # In the middle of a switch, `current` already names the next microprocess while the stack still belongs to the previous one.
        left_by = word(self.vp + root.vp_left_by) if self.vp else 0
        return [at for at in (self.current, left_by) if at]

    def describe(self):
        where = "kernel thread %d" % self.lwp
        if self.unknown:
            return "on %s: runs, or is blocked without its virtual processor (this core file does not show which)" % where
        if self.carries:
            return "runs on %s (VP %d)" % (where, self.vp_index)
        if self.lent:
            return "bound to %s and blocked in the kernel, where VP %d waits to be taken over" % (where, self.vp_index)
        return "bound to %s without a VP: blocked in the kernel, or just back" % where


class Snapshot:
    """All microprocesses, and the kernel threads on which they run."""

    def __init__(self):
        self.root = Root()
        self.every, self.microprocesses, self.threads = [], [], []
        at = self.root.oldest
        while at:
            mp = Microprocess(self.root, at)
            at = mp.newer
            self.every.append(mp)
            if mp.lives():
                self.microprocesses.append(mp)
        by_address = {mp.at: mp for mp in self.microprocesses}
        with kept_selection():
            for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.num):
                found = self.kernel_thread(thread)
                if found is None:
                    continue
                self.threads.append(found)
                on = [by_address[at] for at in found.candidates(self.root) if at in by_address]
                # In a handler on an alternate stack, no candidate matches, and `current` is correct.
                current = [mp for mp in on if mp.at == found.current]
                for mp in [mp for mp in on if found.stack_pointer in mp.stack] or current:
                    mp.thread = found
                    break

    def kernel_thread(self, thread):
        if not thread.is_valid() or thread.is_running():
            return None
        try:
            thread.switch()
            frame = gdb.newest_frame()
            at = int(gdb.parse_and_eval("$gs_base")) & 0xFFFF_FFFF_FFFF_FFFF
            # The first word of a record is its own address.
            if at == 0 or word(at + self.root.thread["this"]) != at:
                return None
            found = KernelThread(self.root, thread, at, register(frame, "rsp"))
            # A thread that has just been started inherits GS from its creator, but has an FS base of its own.
            blocks = [word(on + self.root.record["fs"]) for on in found.candidates(self.root)]
            blocks.append(word(at + self.root.thread["fs"]))
            fs = int(gdb.parse_and_eval("$fs_base")) & 0xFFFF_FFFF_FFFF_FFFF
            return found if fs in blocks else None
        except (gdb.error, gdb.MemoryError):
            return None

    def find(self, text):
        wanted = text.strip().lstrip("#")
        full = re.sub(r"^([0-9/]+)\.([0-9]+\.[0-9]+)$", r"\1.microprocess.\2", wanted)
        found = [mp for mp in self.microprocesses if mp.id == full] or [mp for mp in self.microprocesses if mp.name == text.strip()]
        if len(found) != 1:
            raise gdb.GdbError("kumi: %s microprocess is called %s" % ("no" if not found else "more than one", wanted))
        return found[0]


class kept_selection:
    """Restore the selected thread and frame at the end."""

    def __enter__(self):
        self.thread = gdb.selected_thread()
        try:
            self.frame = gdb.selected_frame()
        except gdb.error:
            self.frame = None

    def __exit__(self, *_):
        if self.thread is not None and self.thread.is_valid():
            self.thread.switch()
            if self.frame is not None and self.frame.is_valid():
                self.frame.select()


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class Substitute(gdb.unwinder.Unwinder):
    """Unwinder that makes the innermost frame of the selected kernel thread unwind to a microprocess's saved context.

    Active while `shown` is set. No register is written, which would be impossible in a core file: an unwinder only
    supplies the registers of the caller's frame.
    """

    def __init__(self):
        super().__init__("kumihimo")
        self.shown = None

    def show(self, mp):
        """Show `mp` from now on, or nothing for None. Return the first frame of the microprocess."""
        self.shown = None
        gdb.invalidate_cached_frames()
        if mp is None:
            return None
        top = gdb.newest_frame()
        here = (register(top, "rsp"), register(top, "rip"))
        _, rbx, rbp, rip = struct.unpack("<4Q", read(mp.context, 32))
        self.shown = here, (mp.context, rbx, rbp, rip, mp.context + mp.root.record["saved"])
        gdb.invalidate_cached_frames()
        frame = gdb.newest_frame()
        while frame is not None:
            if register(frame, "rsp") == mp.context + mp.root.record["saved"] and register(frame, "rip") == rip:
                return frame
            frame = frame.older()
        raise gdb.GdbError("kumi: gdb does not unwind to the saved context")

    def __call__(self, pending):
        if self.shown is None:
            return None
        here, (context, rbx, rbp, rip, rsp) = self.shown
        if (register(pending, "rsp"), register(pending, "rip")) != here:
            return None
        # The frame ID must be below the next frame: gdb treats a caller at a lower address as a corrupt stack.
        info = pending.create_unwind_info(FrameId(number(context), number(here[1])))
        for name, value in (("rip", rip), ("rsp", rsp), ("rbp", rbp), ("rbx", rbx)):
            info.add_saved_register(name, number(value))
        return info


SUBSTITUTE = Substitute()
gdb.unwinder.register_unwinder(None, SUBSTITUTE, replace=True)


def nobody_shown(_event):
    # Stepping examines frames, and needs the real ones.
    if SUBSTITUTE.shown is not None:
        SUBSTITUTE.show(None)


gdb.events.cont.connect(nobody_shown)


def function_at(pc):
    """Return the name of the function at `pc`."""
    text = gdb.execute("info symbol %#x" % pc, to_string=True)
    return text.split(" in section")[0].strip() if " in section" in text else "%#x" % pc


def print_frames(frame, root):
    number = 0
    while frame is not None and number < MOST_FRAMES:
        pc = frame.pc()
        name = frame.name() or function_at(pc)
        sal = frame.find_sal()
        place = " at %s:%d" % (sal.symtab.filename, sal.line) if sal is not None and sal.symtab is not None else ""
        print("  #%-3d %#018x in %s%s" % (number, pc, name, place))
        # The outermost frame of a microprocess has no caller.
        if root.first_step <= pc < root.first_step + 16:
            return
        number += 1
        frame = frame.older()
    if frame is not None:
        print("  ... more than %d frames" % MOST_FRAMES)


def backtrace(mp, snapshot):
    print("microprocess %s %s: %s" % (mp.id, mp.name or "(no name)", mp.describe(snapshot.threads)))
    thread = mp.thread
    if thread is None and mp.context == 0:
        for t in snapshot.threads:
            if t.at == mp.waits_on:
                thread = t
    if thread is not None:
        thread.gdb_thread.switch()
        print_frames(gdb.newest_frame(), snapshot.root)
    elif mp.context == 0 or mp.context not in mp.stack:
        print("  no saved context")
    elif mp.has_not_begun():
        print("  will call %s" % function_at(word(mp.context + 16)))
    else:
        if gdb.selected_thread() is None:
            raise gdb.GdbError("kumi: no kernel thread is selected: select one with `thread`")
        try:
            print_frames(SUBSTITUTE.show(mp), snapshot.root)
        finally:
            SUBSTITUTE.show(None)


PAGE = 4096


class Core(gdb.Command):
    """kumi core FILE: write a core file of the live process, including its microprocesses.

    gdb's own `generate-core-file` stops copying a mapping at the first unreadable page, and each stack has a guard page.
    Core files of the kernel are complete anyway.
    """

    def __init__(self):
        super().__init__("kumi core", gdb.COMMAND_DATA, gdb.COMPLETE_FILENAME)

    def invoke(self, argument, _from_tty):
        path = argument.strip()
        if not path:
            raise gdb.GdbError("kumi core FILE")
        SUBSTITUTE.show(None)
        snapshot = Snapshot()
        gdb.execute("generate-core-file " + path)
        with open(path, "r+b") as file:
            segments = list(self.segments(file))
            for mp in snapshot.every:
                # For a living microprocess, everything from its stack pointer on. For others only the record, which links to the next one.
                low = mp.at
                if mp.thread is not None:
                    low = min(low, mp.thread.stack_pointer - 128) if mp.thread.stack_pointer in mp.stack else mp.stack.start
                elif mp.lives() and mp.context in mp.stack:
                    low = mp.context
                for page in range(low & -PAGE, mp.stack_end, PAGE):
                    self.copy(file, segments, page)

    @staticmethod
    def segments(file):
        header = file.read(64)
        at, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        for i in range(count):
            file.seek(at + i * size)
            kind, _, offset, start, _, length = struct.unpack("<IIQQQQ", file.read(40))
            # PT_LOAD.
            if kind == 1 and length:
                yield range(start, start + length), offset

    @staticmethod
    def copy(file, segments, page):
        for addresses, offset in segments:
            if page in addresses:
                try:
                    data = read(page, PAGE)
                except gdb.MemoryError:
                    return
                file.seek(offset + page - addresses.start)
                file.write(data)
                return


class Kumi(gdb.Command):
    """Microprocesses of Kumihimo: `help kumi` lists the commands."""

    def __init__(self):
        super().__init__("kumi", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)


class Microprocesses(gdb.Command):
    """kumi microprocesses: list all microprocesses with state, object of the wait, and priority."""

    def __init__(self):
        super().__init__("kumi microprocesses", gdb.COMMAND_STATUS)

    def invoke(self, _argument, _from_tty):
        SUBSTITUTE.show(None)
        snapshot = Snapshot()
        for mp in snapshot.microprocesses:
            flags = "".join(text for bit, text in ((CANCELLED, ", cancelled"), (SUSPEND_REQUESTED, ", suspended")) if mp.flags & bit)
            print(
                "microprocess %s %s: %s, priority %s, level %d%s"
                % (mp.id, mp.name or "(no name)", mp.describe(snapshot.threads), mp.priority_text(), mp.level, flags)
            )
        print("%d microprocesses on %d kernel threads of the runtime" % (len(snapshot.microprocesses), len(snapshot.threads)))


class Backtrace(gdb.Command):
    """kumi backtrace ID|all: print the backtrace of one microprocess, by ID or name, or of all."""

    def __init__(self):
        super().__init__("kumi backtrace", gdb.COMMAND_STACK)

    def invoke(self, argument, _from_tty):
        if not argument.strip():
            raise gdb.GdbError("kumi backtrace ID|all")
        SUBSTITUTE.show(None)
        snapshot = Snapshot()
        chosen = snapshot.microprocesses if argument.strip() == "all" else [snapshot.find(argument)]
        with kept_selection():
            for mp in chosen:
                try:
                    backtrace(mp, snapshot)
                except (gdb.error, gdb.MemoryError) as e:
                    # A corrupt stack must not hide the others.
                    print("  cannot be unwound: %s" % e)


class Select(gdb.Command):
    """kumi select [ID]: make bt, up, frame and info locals show that microprocess until the program continues."""

    def __init__(self):
        super().__init__("kumi select", gdb.COMMAND_STACK)

    def invoke(self, argument, _from_tty):
        SUBSTITUTE.show(None)
        if not argument.strip():
            return
        snapshot = Snapshot()
        mp = snapshot.find(argument)
        if mp.thread is not None:
            mp.thread.gdb_thread.switch()
        elif mp.context == 0 or mp.has_not_begun():
            raise gdb.GdbError("kumi: the microprocess has no saved frames")
        else:
            SUBSTITUTE.show(mp).select()
        gdb.execute("frame")


Kumi()
Microprocesses()
Backtrace()
Select()
Core()
gdb.execute("with confirm off -- handle SIGTRAP nostop noprint nopass", to_string=True)

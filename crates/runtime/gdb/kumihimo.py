"""gdb commands for programs that run on Kumihimo, live or as a core file (the kernel's, or one by `kumi core`).

  kumi microprocesses          lists them: id, state, priority, what it waits for, name
  kumi backtrace ID|all        the backtrace of one (id, or name if only one has it), or of each
  kumi select ID               gdb looks at that one from now on: bt, up, frame, info locals
  kumi select                  gdb looks at the selected kernel thread again
  kumi core FILE               `generate-core-file FILE` that has the microprocesses in it, too

Load with `source kumihimo.py`. Programs built with debug information carry it in `.debug_gdb_scripts`: for these,
`add-auto-load-safe-path PROGRAM` is enough. It needs the symbol KUMIHIMO_DEBUG (not stripped), and debug information only for the
names and lines in backtraces. It reads memory and registers and writes none.

Loading it tells gdb not to stop at a SIGTRAP of the kernel's half (it sends some where gdb was attached later), and to keep it: what it
tells, the runtime then finds out by itself, later. Breakpoints are not affected. Never let gdb pass SIGTRAP on: it then passes those of its
own breakpoints on as well, which end any program (gdb 13).
"""

import re
import struct

import gdb
import gdb.unwinder

VERSION = 3
FREE, LIVE, PARKED, DONE, ABANDONED, SUSPENDED = range(6)
PERMIT, CANCELLED, SUSPEND_REQUESTED = 8, 16, 32
GENERATION_SHIFT = 8
LENT = 2
TIMED, KIND = 0x80, 0x1F
NO_INHERITANCE = 0xFF
# microprocess/wait_reason.rs, Wait::encode; the braces take the object, {id} as an id.
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
    20: "a gate",
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
    # Some are pointers, with a type of their own.
    return int(frame.read_register(name).cast(number(0).type)) & 0xFFFF_FFFF_FFFF_FFFF


def number(value):
    """A 64-bit register's contents as gdb wants them. (By type name would depend on the language.)"""
    kind = gdb.selected_inferior().architecture().integer_type(64, False)
    return gdb.Value(struct.pack("<Q", value), kind)


def symbol_address(name):
    """The address of a symbol, from the symbol table alone."""
    language = gdb.parameter("language")
    gdb.execute("set language c", to_string=True)
    try:
        return int(gdb.parse_and_eval("(unsigned long)&" + name))
    except gdb.error:
        return None
    finally:
        gdb.execute("set language " + language, to_string=True)


def printed(bits):
    """An id as people read it (crates/resource/src/id.rs)."""
    if bits >> 63:
        return "kernel-thread.%d" % (bits & 0x7FFF_FFFF_FFFF_FFFF)
    machine, space = bits >> 61 & 3, bits >> 49 & 0xFFF
    return "%s%d.microprocess.%d.%d" % ("%d/" % machine if machine else "", space, bits >> 23 & 0x1F_FFFF, bits & 0x7F_FFFF)


class Root:
    """The runtime's `Root` (crates/runtime/src/observe/debug.rs)."""

    def __init__(self):
        at = symbol_address("KUMIHIMO_DEBUG")
        if at is None:
            raise gdb.GdbError("kumi: no symbol KUMIHIMO_DEBUG: not a program of Kumihimo's, or stripped")
        try:
            magic, version, size = struct.unpack("<8sII", read(at, 16))
        except gdb.MemoryError:
            raise gdb.GdbError("kumi: no memory to look at: start the program or load a core file")
        if magic != b"KUMIDBG\0" or version != VERSION:
            raise gdb.GdbError("kumi: the program's records are of version %d, this script reads %d" % (version, VERSION))
        data = read(at, size)
        prefix_at, oldest_at, self.first_step = struct.unpack_from("<QQQ", data, 16)
        # Not relocated yet in a program that has not started.
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
        # What is read of a record at a time.
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
    """A kernel thread of the runtime, and which microprocess's stack it stands on."""

    def __init__(self, root, thread, at, stack_pointer):
        o = root.thread
        self.gdb_thread, self.at, self.lwp = thread, at, thread.ptid[1] or thread.ptid[2]
        self.vp, self.current = word(at + o["vp"]), word(at + o["current"])
        self.stack_pointer = stack_pointer
        token = word(at + o["token"])
        try:
            in_slot = word(word(at + o["slot"]) + root.slot_vp)
        except gdb.MemoryError:
            # The shared page is a BPF map's, which no core file has.
            in_slot = None
        self.carries = self.vp != 0 and in_slot == token
        self.unknown = self.vp != 0 and in_slot is None
        self.lent = self.vp != 0 and in_slot == token | LENT
        self.vp_index = half(self.vp + root.vp_index) if self.vp else None

    def candidates(self, root):
        # In the middle of a switch the next one is noted already, on the stack of the one that leaves.
        left_by = word(self.vp + root.vp_left_by) if self.vp else 0
        return [at for at in (self.current, left_by) if at]

    def describe(self):
        where = "kernel thread %d" % self.lwp
        if self.unknown:
            return "on %s: runs, or is blocked without its virtual processor (which of them this core file does not have)" % where
        if self.carries:
            return "runs on %s (VP %d)" % (where, self.vp_index)
        if self.lent:
            return "bound to %s and blocked in the kernel, where VP %d waits to be taken over" % (where, self.vp_index)
        return "bound to %s without a VP: blocked in the kernel, or just back" % where


class Snapshot:
    """All microprocesses, and who of them is where."""

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
                # A handler on an alternate stack is on nobody's: then it is the one that is noted.
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
            # Its own address is its first word.
            if at == 0 or word(at + self.root.thread["this"]) != at:
                return None
            found = KernelThread(self.root, thread, at, register(frame, "rsp"))
            # One that has just been started has its maker's GS, but an FS of its own.
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
    """Thread and frame are selected again at the end."""

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
    """While it has somebody to show, the innermost frame of the selected kernel thread unwinds to that one's saved context.

    Registers cannot be written in a core file, and need not be in a live process: a frame is asked for its caller only.
    """

    def __init__(self):
        super().__init__("kumihimo")
        self.shown = None

    def show(self, mp):
        """From now on; None: nobody. Returns the first frame of the microprocess."""
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
        # Below the frame that follows: gdb takes a caller further down for a broken stack.
        info = pending.create_unwind_info(FrameId(number(context), number(here[1])))
        for name, value in (("rip", rip), ("rsp", rsp), ("rbp", rbp), ("rbx", rbx)):
            info.add_saved_register(name, number(value))
        return info


SUBSTITUTE = Substitute()
gdb.unwinder.register_unwinder(None, SUBSTITUTE, replace=True)


def nobody_shown(_event):
    # Stepping looks at frames: it must see the true ones.
    if SUBSTITUTE.shown is not None:
        SUBSTITUTE.show(None)


gdb.events.cont.connect(nobody_shown)


def function_at(pc):
    """The name of what lies at `pc`."""
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
        # Nothing lies above the first one of all.
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
            raise gdb.GdbError("kumi: no kernel thread to look from")
        try:
            print_frames(SUBSTITUTE.show(mp), snapshot.root)
        finally:
            SUBSTITUTE.show(None)


PAGE = 4096


class Core(gdb.Command):
    """kumi core FILE: a core file of the live process, with its microprocesses.

    gdb's own `generate-core-file` gives a mapping up at the first page that cannot be read, and each stack has its guard page. Core files that
    the kernel writes need nothing of this.
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
                # Of one that lives all from its stack pointer on; of others the record, through which the list goes on.
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
    """kumi microprocesses: lists all of them with state, priority, and what they wait for."""

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
    """kumi backtrace ID|all: where one of them is, by id or by name, or each."""

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
                    # One broken stack is no reason to hide the others.
                    print("  cannot be unwound: %s" % e)


class Select(gdb.Command):
    """kumi select [ID]: bt, up, frame and info locals are about that one, until the program goes on."""

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
            raise gdb.GdbError("kumi: it has no frames of its own")
        else:
            SUBSTITUTE.show(mp).select()
        gdb.execute("frame")


Kumi()
Microprocesses()
Backtrace()
Select()
Core()
gdb.execute("with confirm off -- handle SIGTRAP nostop noprint nopass", to_string=True)

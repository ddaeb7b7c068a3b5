//! Attributes of the calling kernel thread that the runtime cannot set back, as far as the kernel
//! tells them cheaply. Debug builds compare them at switches.
//!
//! Left out is what another process may change (affinity, scheduling class, I/O priority), and
//! what only `/proc` shows (namespaces without a file system of their own, Landlock, filters after
//! the first).

use crate::system_call;

/// A snapshot. An entry is the answer of the system call, also if that is an error: a kernel that
/// lacks the call always answers the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Irrevocable {
    seccomp: isize,
    no_new_privs: isize,
    users: [u32; 4],
    groups: [u32; 4],
    capabilities: [u32; 6],
    secure_bits: isize,
    execution_domain: isize,
    memory_policy: isize,
    thread_keyring: isize,
    session_keyring: isize,
    protection_keys: u32,
    file_system: isize,
    descriptors: isize,
}

/// An attribute that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The attribute, in words.
    pub what: &'static str,
    /// Whether the C library or the kernel may have applied it to all threads (setuid(2) and its
    /// like, `SECCOMP_FILTER_FLAG_TSYNC`).
    pub may_be_of_process: bool,
}

impl Irrevocable {
    /// Takes a snapshot: some fifteen system calls, none of which changes or allocates anything.
    /// `leader` is the ID of the process, whose first thread has what the process shares.
    #[must_use]
    pub fn now(leader: u32) -> Irrevocable {
        // Linux's UAPI headers; absent from the libc crate.
        const CAPABILITY_VERSION: u32 = 0x2008_0522;
        const GET_KEYRING_ID: usize = 0;
        const THREAD_KEYRING: isize = -1;
        const SESSION_KEYRING: isize = -3;
        const KCMP_VM: usize = 1;
        const KCMP_FILES: usize = 2;
        const KCMP_FS: usize = 3;
        const QUERY: usize = u32::MAX as usize;
        let prctl = |option: i32| ask(libc::SYS_prctl, [option as usize, 0, 0, 0, 0]);
        let ids = |all: libc::c_long, file_system: libc::c_long| {
            let mut ids = [0; 4];
            let [real, effective, saved, other] = &mut ids;
            ask(all, [at_mut(real), at_mut(effective), at_mut(saved), 0, 0]);
            *other = ask(file_system, [QUERY, 0, 0, 0, 0]) as u32;
            ids
        };
        let keyring =
            |which: isize| ask(libc::SYS_keyctl, [GET_KEYRING_ID, which.cast_unsigned(), 0, 0, 0]);
        // SAFETY: takes nothing.
        let own = unsafe { system_call(libc::SYS_gettid, [0; 6]) }.cast_unsigned();
        let compared = |what| ask(libc::SYS_kcmp, [leader as usize, own, what, 0, 0]);
        // After its end, the first thread has nothing to compare with, not even memory.
        let has_leader = compared(KCMP_VM) == 0;
        let shared = |what| if has_leader { compared(what) } else { 0 };
        let mut capabilities = [0; 6];
        let mut header = [CAPABILITY_VERSION, 0];
        ask(libc::SYS_capget, [at_mut(&mut header), at_mut(&mut capabilities), 0, 0, 0]);
        let mut policy = 0i32;
        let got = ask(libc::SYS_get_mempolicy, [at_mut(&mut policy), 0, 0, 0, 0]);
        Irrevocable {
            seccomp: prctl(libc::PR_GET_SECCOMP),
            no_new_privs: prctl(libc::PR_GET_NO_NEW_PRIVS),
            users: ids(libc::SYS_getresuid, libc::SYS_setfsuid),
            groups: ids(libc::SYS_getresgid, libc::SYS_setfsgid),
            capabilities,
            secure_bits: prctl(libc::PR_GET_SECUREBITS),
            execution_domain: ask(libc::SYS_personality, [QUERY, 0, 0, 0, 0]),
            memory_policy: if got < 0 { got } else { policy as isize },
            thread_keyring: keyring(THREAD_KEYRING),
            session_keyring: keyring(SESSION_KEYRING),
            protection_keys: crate::machine::cpu::protection_keys(),
            file_system: shared(KCMP_FS),
            descriptors: shared(KCMP_FILES),
        }
    }

    /// Whether a filter of system calls is in force. Such a filter may end the process for the
    /// calls of [`now`](Self::now).
    #[must_use]
    pub fn is_filtered() -> bool {
        ask(libc::SYS_prctl, [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0]) != 0
    }

    /// Returns the first attribute in which this snapshot differs from an earlier one.
    #[must_use]
    pub fn difference(&self, before: &Irrevocable) -> Option<Difference> {
        let all = [
            ("seccomp mode", self.seccomp == before.seccomp, true),
            ("no_new_privs", self.no_new_privs == before.no_new_privs, true),
            ("user", self.users == before.users, true),
            ("group", self.groups == before.groups, true),
            ("capabilities", self.capabilities == before.capabilities, true),
            ("secure bits", self.secure_bits == before.secure_bits, false),
            ("execution domain", self.execution_domain == before.execution_domain, false),
            ("memory policy", self.memory_policy == before.memory_policy, false),
            ("thread keyring", self.thread_keyring == before.thread_keyring, false),
            ("session keyring", self.session_keyring == before.session_keyring, false),
            ("protection keys", self.protection_keys == before.protection_keys, false),
            ("file system context", self.file_system == before.file_system, false),
            ("descriptor table", self.descriptors == before.descriptors, false),
        ];
        let mut changed = all.into_iter().filter(|(_, is_same, _)| !is_same);
        changed.next().map(|(what, _, may_be_of_process)| Difference { what, may_be_of_process })
    }
}

fn ask(number: libc::c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    // SAFETY: the callers above pass integers, and pointers to live values of the right type.
    unsafe { system_call(number, [a, b, c, d, e, 0]) }
}

fn at_mut<T>(value: &mut T) -> usize {
    std::ptr::from_mut(value).expose_provenance()
}

//! Docker's default seccomp profile, as a list of what it refuses.
//!
//! Source: moby, profiles/seccomp/default.json, for a container with the default capabilities on a
//! kernel before 4.8 (where ptrace(2) is refused too). Docker lists what is allowed; this module
//! lists what is not, among the calls of x86-64 that this processor has.

use std::io;

/// Audit architecture of this processor's system calls.
const AUDIT_ARCH: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

// Offsets in struct seccomp_data, see seccomp(2). The low half of an argument comes first.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// The flags of clone(2) that make a namespace. CLONE_NEWTIME does not exist there.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Calls that fail with EPERM whatever their arguments are.
pub(super) const REFUSED: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vserver,
    libc::SYS_set_mempolicy_home_node,
];

/// Values of the first argument of personality(2) that are allowed.
const PERSONALITIES: [u32; 5] = [0, 8, 0x20000, 0x20008, 0xffff_ffff];

fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn load(offset: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn answer(with: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, with)
}

fn refuse_with(errno: i32) -> libc::sock_filter {
    answer(libc::SECCOMP_RET_ERRNO | errno as u32)
}

/// Skips `steps` steps unless the loaded value is `k`.
fn unless_equal(k: u32, steps: u8) -> libc::sock_filter {
    libc::sock_filter { jf: steps, ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) }
}

/// Skips `steps` steps if the loaded value is `k`.
fn if_equal(k: u32, steps: u8) -> libc::sock_filter {
    libc::sock_filter { jt: steps, ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) }
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("a system call")
}

/// Returns the filter program.
pub(super) fn default_profile() -> Vec<libc::sock_filter> {
    let allow = || answer(libc::SECCOMP_RET_ALLOW);
    let mut program =
        vec![load(ARCH), if_equal(AUDIT_ARCH, 1), refuse_with(libc::EPERM), load(NUMBER)];
    for &call in REFUSED {
        program.extend([unless_equal(number(call), 1), refuse_with(libc::EPERM)]);
    }
    // Its flags are in memory, where a filter cannot look: C libraries then use clone(2).
    program.extend([unless_equal(number(libc::SYS_clone3), 1), refuse_with(libc::ENOSYS)]);
    program.extend([
        unless_equal(number(libc::SYS_clone), 4),
        load(FIRST_ARGUMENT),
        libc::sock_filter {
            jf: 1,
            ..step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, NEW_NAMESPACES)
        },
        refuse_with(libc::EPERM),
        allow(),
    ]);
    program.extend([
        unless_equal(number(libc::SYS_socket), 4),
        load(FIRST_ARGUMENT),
        unless_equal(libc::AF_VSOCK as u32, 1),
        refuse_with(libc::EPERM),
        allow(),
    ]);
    let values = PERSONALITIES.len() as u8;
    program.extend([unless_equal(number(libc::SYS_personality), values + 3), load(FIRST_ARGUMENT)]);
    for (i, value) in (0..).zip(PERSONALITIES) {
        program.push(if_equal(value, values - i));
    }
    program.extend([refuse_with(libc::EPERM), allow(), allow()]);
    program
}

/// Installs the filter for the calling thread and its children. Needs CAP_SYS_ADMIN, so that
/// programs inside may gain the privileges that the container leaves, as in Docker.
pub(super) fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: as many steps as the length tells, which outlive the call.
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

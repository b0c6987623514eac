//! seccomp: a task can do what its capabilities say and nothing else.

use super::memory::start;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use ipc::hosted::{DEVICE_LISTENER, DEVICE_TAP, NONE};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Takes away all system calls but those that the start document gives reasons for. A failure ends the process: a task never
/// runs unconfined.
pub fn confine() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("panic");
        crate::entry::panicked(format_args!("{message}"), panic.location())
    }));
    let header = start().header;
    let mut rules = Rules::new();
    for call in
        [libc::SYS_ppoll, libc::SYS_clock_gettime, libc::SYS_getrandom, libc::SYS_exit, libc::SYS_exit_group]
    {
        rules.insert(call, vec![]);
    }
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_poll, vec![]);
    on(&mut rules, libc::SYS_read, header.bell);
    let written = start().signals.iter().copied().chain([header.report, header.serial]);
    written.filter(|&fd| fd != NONE).for_each(|fd| on(&mut rules, libc::SYS_write, fd));
    match header.device_kind {
        DEVICE_LISTENER => sockets(&mut rules, header.device),
        DEVICE_TAP => tap(&mut rules, header.device),
        _ => {}
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into().expect("an architecture that seccomp knows"),
    );
    // The first look at the clock finds the vDSO, for which it asks the kernel.
    super::ticks_now();
    let program: seccompiler::BpfProgram = filter.and_then(TryInto::try_into).expect("a filter of constants");
    seccompiler::apply_filter(&program).expect("seccomp is there: the host command needs Linux 3.17");
}

/// `call` on this descriptor only.
fn on(rules: &mut Rules, call: i64, fd: i32) {
    let is = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, fd as u64);
    let rule = SeccompRule::new(vec![is.expect("the first argument")]).expect("one condition");
    rules.entry(call).or_default().push(rule);
}

/// A front end of the kernel's TCP: it takes connections, reads, writes and closes them, and opens nothing.
fn sockets(rules: &mut Rules, listener: i32) {
    on(rules, libc::SYS_accept4, listener);
    for call in [
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_shutdown,
        libc::SYS_setsockopt,
        libc::SYS_close,
        libc::SYS_epoll_create1,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ] {
        rules.insert(call, vec![]);
    }
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_epoll_wait, vec![]);
}

fn tap(rules: &mut Rules, device: i32) {
    for call in [libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev] {
        on(rules, call, device);
    }
}

//! Starts the other processors (Intel SDM volume 3, 9.4.4 "MP initialization example") and parks them where the
//! Limine protocol wants them: looking at their `goto_address`.
//!
//! One trampoline page below 1 MiB serves all, one after the other. A processor that starts takes the *ticket*; one
//! that comes too late finds none and sleeps for good. Range registers (MTRRs) are as the firmware left them: firmware that
//! starts the other processors itself (SeaBIOS, OVMF) has set them alike, and hypervisors don't look at them.

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU64, fence};

use crate::arena::Arena;
use crate::cpus::Cpu;
use crate::limine::HHDM;
use crate::paging::X86;
use crate::prepare::Processors;
use crate::x86_64::{self as arch, Descriptor, port};

/// What all of them need.
pub struct Start {
    pub trampoline: u64,
    pub root: u64,
    pub gdt: Descriptor,
    /// Of processor 0; each next one's is `stack_bytes` higher.
    pub stack_top: u64,
    pub stack_bytes: u64,
}

/// Data in the trampoline, 16 bytes from its start.
#[repr(C)]
struct Slots {
    /// 1: for the next that starts; taken by an exchange.
    ticket: AtomicU64,
    /// Release by the processor when it is parked; Acquire in `wait`.
    parked: AtomicU64,
    info: u64,
    goto_address: u64,
    stack: u64,
    root: u64,
    x2apic: u64,
    /// Far pointer into 64-bit code.
    far: [u32; 2],
    /// Of the copy below, which is mapped here when paging goes on; and of the kernel's.
    gdt_here: Descriptor,
    gdt: Descriptor,
    descriptors: [u64; 7],
}

global_asm!(
    r#"
    .text
    .balign 16
    .globl urmqtt_ap_start
urmqtt_ap_start:
    .code16
    jmp 4f
    .balign 16
    .globl urmqtt_ap_slots
urmqtt_ap_slots:
    .skip 160
4:
    cli
    cld
    mov ax, cs
    mov ds, ax
    lgdtd ds:[16 + 64]
    mov eax, {cr4}
    mov cr4, eax
    mov eax, ds:[16 + 40]
    mov cr3, eax
    mov ecx, {efer}
    rdmsr
    or eax, {efer_bits}
    wrmsr
    mov eax, {cr0}
    mov cr0, eax
    // jmp fword ptr [16 + 56]: the assembler has no name for it in 16-bit code.
    .byte 0x66, 0xff, 0x2e
    .short 16 + 56

    .code64
    .globl urmqtt_ap_long
urmqtt_ap_long:
    mov eax, 0x30
    mov ds, eax
    mov es, eax
    mov fs, eax
    mov gs, eax
    mov ss, eax
    // Here the page can't be written; in the direct map it can.
    lea rbx, [rip + urmqtt_ap_slots]
    movabs rax, {direct_map}
    add rbx, rax
    xor eax, eax
    xchg [rbx], rax
    test rax, rax
    jz 3f
    lgdt [rbx + 74]
    mov ecx, {pat}
    mov eax, {pat_low}
    mov edx, {pat_high}
    wrmsr
    cmp qword ptr [rbx + 48], 0
    je 1f
    mov ecx, 0x1b
    rdmsr
    or eax, 0xc00
    wrmsr
1:
    mov rdi, [rbx + 16]
    mov rsi, [rbx + 24]
    mov rsp, [rbx + 32]
    mov qword ptr [rbx + 8], 1
2:
    pause
    mov rax, [rsi]
    test rax, rax
    jz 2b
    push 0
    push rax
    xor eax, eax
    xor ebx, ebx
    xor ecx, ecx
    xor edx, edx
    xor esi, esi
    xor ebp, ebp
    xor r8d, r8d
    xor r9d, r9d
    xor r10d, r10d
    xor r11d, r11d
    xor r12d, r12d
    xor r13d, r13d
    xor r14d, r14d
    xor r15d, r15d
    ret
3:
    cli
    hlt
    jmp 3b
    .globl urmqtt_ap_end
urmqtt_ap_end:
    .text
    "#,
    direct_map = const HHDM,
    cr4 = const arch::CR4,
    efer = const arch::EFER,
    efer_bits = const arch::EFER_LME | arch::EFER_NXE,
    cr0 = const arch::CR0,
    pat = const arch::PAT,
    pat_low = const arch::PAT_LOW,
    pat_high = const arch::PAT_HIGH,
);

unsafe extern "C" {
    static urmqtt_ap_start: [u8; 0];
    static urmqtt_ap_long: [u8; 0];
    static urmqtt_ap_slots: [u8; 0];
    static urmqtt_ap_end: [u8; 0];
}

const _: () = {
    assert!(offset_of!(Slots, stack) == 32);
    assert!(offset_of!(Slots, root) == 40);
    assert!(offset_of!(Slots, x2apic) == 48);
    assert!(offset_of!(Slots, far) == 56);
    assert!(offset_of!(Slots, gdt_here) == 64);
    assert!(offset_of!(Slots, gdt) == 74);
    assert!(size_of::<Slots>() <= 160);
};

/// Starts all but the first, and tells the list of those that came up.
///
/// # Safety
/// The trampoline page is ours, below 1 MiB, mapped at its address now and in the tables of `root`; those tables are
/// complete and below 4 GiB.
pub unsafe fn start(start: &Start, cpus: &[Cpu], list: &mut Processors, arena: &mut Arena<'_>) {
    let apic = Apic::new(list.x2apic);
    if let Apic::X2 = apic {
        list.in_x2apic_mode(arena, cpus[0].id);
    }
    if cpus.len() == 1 {
        return;
    }
    // SAFETY: the page is ours; code and slots fit in it.
    let slots = unsafe { copy_trampoline(start, &apic) };
    for (index, cpu) in cpus.iter().enumerate().skip(1) {
        // An xAPIC can't name more than 255 processors.
        if matches!(apic, Apic::X1(_)) && cpu.id >= 255 {
            continue;
        }
        let (info, goto_address) = list.info::<X86>(index);
        // SAFETY: nobody runs in the trampoline: earlier processors have parked, or find no ticket.
        unsafe {
            (*slots).info = info;
            (*slots).goto_address = goto_address;
            (*slots).stack = start.stack_top + index as u64 * start.stack_bytes;
        }
        // SAFETY: as above; these are atomics.
        let (ticket, parked) = unsafe { (&(*slots).ticket, &(*slots).parked) };
        parked.store(0, Release);
        ticket.store(1, Release);
        if wake(&apic, cpu.id, start.trampoline, parked) {
            list.started(arena, index);
        } else if ticket.swap(0, Acquire) == 0 {
            // It took the ticket and is on its way: it parks, late, and nobody will send it on.
            while parked.load(Acquire) == 0 {
                core::hint::spin_loop();
            }
        }
    }
    fence(Acquire);
}

/// # Safety
/// See [`start`].
unsafe fn copy_trampoline(start: &Start, apic: &Apic) -> *mut Slots {
    let code = (&raw const urmqtt_ap_start).cast::<u8>();
    let offset = |symbol: *const [u8; 0]| symbol as u64 - code as u64;
    let slots = (start.trampoline + offset(&raw const urmqtt_ap_slots)) as *mut Slots;
    // SAFETY: the labels bound the code, a few hundred bytes; the page is ours.
    unsafe {
        core::ptr::copy_nonoverlapping(
            code,
            start.trampoline as *mut u8,
            offset(&raw const urmqtt_ap_end) as usize,
        );
        slots.write(Slots {
            ticket: AtomicU64::new(0),
            parked: AtomicU64::new(0),
            info: 0,
            goto_address: 0,
            stack: 0,
            root: start.root,
            x2apic: matches!(apic, Apic::X2).into(),
            far: [(start.trampoline + offset(&raw const urmqtt_ap_long)) as u32, 0x28],
            gdt_here: Descriptor { base: slots as u64 + offset_of!(Slots, descriptors) as u64, ..start.gdt },
            descriptors: arch::GDT,
            gdt: start.gdt,
        });
    }
    slots
}

/// INIT, then SIPI up to twice. True: it has parked. Time is counted in writes to port 0x80, a microsecond each on a PC.
fn wake(apic: &Apic, id: u64, trampoline: u64, parked: &AtomicU64) -> bool {
    const INIT: u32 = 0x4500;
    const SIPI: u32 = 0x4600;
    apic.send(id, INIT);
    wait(200, || false);
    for microseconds in [300, 1_000_000] {
        apic.send(id, SIPI | (trampoline >> 12) as u32);
        // Acquire: pairs with the store in the trampoline (x86 stores are releases).
        if wait(microseconds, || parked.load(Acquire) != 0) {
            return true;
        }
    }
    false
}

fn wait(microseconds: u32, done: impl Fn() -> bool) -> bool {
    (0..microseconds).any(|_| {
        port::write(0x80, 0);
        done()
    })
}

/// Our own local APIC: memory-mapped, or in x2APIC mode.
enum Apic {
    X1(*mut u32),
    X2,
}

impl Apic {
    /// Changes to x2APIC mode if that is wished and possible; it is kept where firmware has chosen it.
    fn new(x2apic: bool) -> Self {
        const BASE: u32 = 0x1b;
        const ENABLE: u64 = 1 << 11;
        const EXTENDED: u64 = 1 << 10;
        let possible = core::arch::x86_64::__cpuid(1).ecx & 1 << 21 != 0;
        // SAFETY: every x86_64 processor has this register; setting both bits is an allowed transition.
        let base = unsafe { read_msr(BASE) };
        if base & EXTENDED != 0 {
            return Apic::X2;
        }
        if x2apic && possible {
            // SAFETY: as above.
            unsafe { write_msr(BASE, base | ENABLE | EXTENDED) };
            return Apic::X2;
        }
        // SAFETY: as above.
        unsafe { write_msr(BASE, base | ENABLE) };
        Apic::X1((base & 0xf_ffff_f000) as *mut u32)
    }

    /// Sends an interrupt command to one processor, and waits until it has left.
    fn send(&self, id: u64, command: u32) {
        const PENDING: u32 = 1 << 12;
        match self {
            // SAFETY: the interrupt command register (SDM volume 3, 11.12.9); x2APIC mode is on.
            Apic::X2 => unsafe { write_msr(0x830, id << 32 | u64::from(command)) },
            // SAFETY: the interrupt command register (11.6.1) of our own APIC, in the identity map.
            Apic::X1(base) => unsafe {
                base.byte_add(0x310).write_volatile((id as u32) << 24);
                base.byte_add(0x300).write_volatile(command);
                wait(1000, || base.byte_add(0x300).read_volatile() & PENDING == 0);
            },
        }
    }
}

/// # Safety
/// The register exists.
unsafe fn read_msr(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: as the caller promises.
    unsafe {
        core::arch::asm!("rdmsr", in("ecx") number, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// # Safety
/// The register exists and takes the value, and nothing that the compiler knows of depends on it.
unsafe fn write_msr(number: u32, value: u64) {
    // SAFETY: as the caller promises. Not `nomem`: earlier stores must be made before an interrupt is sent.
    unsafe {
        core::arch::asm!("wrmsr", in("ecx") number, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack, preserves_flags));
    }
}

# SPDX-License-Identifier: Apache-2.0
"""Turns what the kernel says of itself into checks: version, type information, lockdown, settings, clock, accounts."""

from __future__ import annotations

from flextrace.checks.check import Check, fail, ok, warn
from flextrace.checks.host import Host, readable

AREA = "kernel"
OLDEST_TESTED = (6, 1)
NEWER_KERNEL = "sudo apt install -t bookworm-backports linux-image-amd64 (of Debian's backports), then reboot"
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen")
VIRTIO_BALLOON, REPORTING_BIT = "0x0005", 5


def kernel_checks(host: Host) -> list[Check]:
    """Everything that can be said without loading a program."""
    return [
        machine_check(host),
        release_check(host),
        types_check(host),
        lockdown_check(host),
        namespace_check(host),
        pid_namespace_check(host),
        settings_check(host),
        accounts_check(host),
        clock_check(host),
        memory_check(host),
        idle_memory_check(host),
    ]


def machine_check(host: Host) -> Check:
    """The recorder reads arguments of system calls where x86-64 has them."""
    if host.machine == "x86_64":
        return ok(AREA, "machine", "x86_64")
    return fail(
        *(AREA, "machine", f"{host.machine}: the recorder knows the system calls of x86_64 only"),
        "record on an x86_64 machine; the trace can be characterized, altered and replayed on any",
    )


def release_check(host: Host) -> Check:
    """What a kernel offers is looked up, so its version alone is never the reason of a failure."""
    if host.version >= OLDEST_TESTED:
        return ok(AREA, "release", f"Linux {host.release}")
    return warn(
        *(AREA, "release", f"Linux {host.release}: the recorder was never tried on a kernel before 6.1"),
        "use Debian 12's own kernel: sudo apt install linux-image-amd64, then reboot",
    )


def types_check(host: Host) -> Check:
    """BTF, from which the programs learn this kernel's structures."""
    path = host.sys / "kernel/btf/vmlinux"
    if readable(path):
        return ok(AREA, "BTF", f"{path} can be read")
    if path.exists():
        return fail(AREA, "BTF", f"{path} cannot be read", f"sudo chmod 444 {path}")
    return fail(
        *(AREA, "BTF", f"there is no {path}: the kernel was built without CONFIG_DEBUG_INFO_BTF=y, or /sys is hidden"),
        "use Debian's own kernel: sudo apt install linux-image-amd64, then reboot; "
        "in a container: docker run -v /sys/kernel/btf:/sys/kernel/btf:ro ...",
    )


def lockdown_check(host: Host) -> Check:
    """Lockdown for confidentiality forbids programs to read kernel memory; for integrity it does not."""
    text = host.text(host.sys / "kernel/security/lockdown")
    if text is None:
        return ok(
            AREA, "lockdown", "the kernel does not say (no securityfs); the programs below are tried all the same"
        )
    chosen = next((word.strip("[]") for word in text.split() if word.startswith("[")), "")
    if chosen == "confidentiality":
        return fail(
            *(AREA, "lockdown", "confidentiality: the kernel lets no program read its memory"),
            "take lockdown=confidentiality out of GRUB_CMDLINE_LINUX in /etc/default/grub, "
            "then: sudo update-grub && sudo reboot",
        )
    return ok(AREA, "lockdown", f"{chosen}: does not concern recording")


def namespace_check(host: Host) -> Check:
    """Capabilities of a user namespace are none where the whole kernel is looked at."""
    if host.in_user_namespace:
        return fail(
            *(AREA, "user namespace", "capabilities count only inside this container or user namespace"),
            "run it outside; or with the capabilities of the host: "
            "docker run --userns=host --pid=host --cap-add BPF --cap-add PERFMON ...",
        )
    return ok(AREA, "user namespace", "the host's")


def pid_namespace_check(host: Host) -> Check:
    """The programs know processes by the numbers that the kernel itself has for them."""
    if host.in_pid_namespace:
        return fail(
            *(AREA, "PID namespace", "processes have other numbers in this container than in the kernel"),
            "run it outside; or with the numbers of the host: docker run --pid=host ...",
        )
    return ok(AREA, "PID namespace", "the host's")


def settings_check(host: Host) -> Check:
    """Two settings that are often suspected, in vain: they concern those who have no capability."""
    names = ("unprivileged_bpf_disabled", "perf_event_paranoid")
    values = {name: host.text(host.proc / "sys/kernel" / name) for name in names}
    told = ", ".join(f"kernel.{name}={value}" for name, value in values.items() if value is not None)
    return ok(
        AREA, "settings", f"{told or 'not readable'}: need not be changed, they do not bind CAP_BPF and CAP_PERFMON"
    )


def accounts_check(host: Host) -> Check:
    """What the kernel charges a task, against which a recording is checked."""
    if not (host.proc / "self").exists():
        cause = f"there is no {host.proc}: neither these accounts nor control groups are found"
        return warn(AREA, "I/O accounts", cause, "sudo mount -t proc proc /proc")
    if (host.proc / "self/io").exists():
        return ok(
            AREA, "I/O accounts", "a recording is compared with what the kernel charged (flextrace info: closure)"
        )
    return warn(
        *(AREA, "I/O accounts", "no /proc/self/io: a recording cannot be compared with what the kernel charged"),
        "use a kernel with CONFIG_TASK_IO_ACCOUNTING=y, such as Debian's: "
        "sudo apt install linux-image-amd64, then reboot",
    )


def clock_check(host: Host) -> Check:
    """Every record has two times."""
    place = host.sys / "devices/system/clocksource/clocksource0"
    current = host.text(place / "current_clocksource")
    if current is None:
        return ok(AREA, "clock", "the kernel does not say which one it uses")
    if current in FAST_CLOCKS:
        return ok(AREA, "clock", current)
    others = (host.text(place / "available_clocksource") or "").split()
    better = next((name for name in FAST_CLOCKS if name in others), None)
    return warn(
        *(AREA, "clock", f"{current}: slow to read, which makes recording slow"),
        f"echo {better} | sudo tee {place}/current_clocksource"
        if better
        else "the kernel found no faster one (sudo dmesg | grep -i clocksource says why): expect a higher cost",
    )


def memory_check(host: Host) -> Check:
    """A virtual machine's host may take free memory back (virtio 1.2, 5.5: free page reporting)."""
    for device in sorted((host.sys / "bus/virtio/devices").glob("*")):
        features = host.text(device / "features") or ""
        if host.text(device / "device") == VIRTIO_BALLOON and features[REPORTING_BIT : REPORTING_BIT + 1] == "1":
            return ok(AREA, "free memory", "its host takes it back: times of its first use differ from run to run")
    return ok(AREA, "free memory", "stays with this machine")


def idle_memory_check(host: Host) -> Check:
    """DAMON may page out what nobody seems to use (admin-guide/mm/damon), a file's cached parts among it."""
    schemes = [
        scheme
        for thread in sorted((host.sys / "kernel/mm/damon/admin/kdamonds").glob("[0-9]*"))
        if host.text(thread / "state") == "on"
        for scheme in sorted(thread.glob("contexts/*/schemes/[0-9]*"))
        if host.text(scheme / "action") == "pageout"
    ]
    reclaims = host.text(host.sys / "module/damon_reclaim/parameters/enabled") == "Y"
    if schemes or reclaims:
        cause = "DAMON pages out what seems unused: of files at rest, cached parts may go while memory is free"
        return ok(AREA, "idle memory", cause)
    return ok(AREA, "idle memory", "stays where it is")

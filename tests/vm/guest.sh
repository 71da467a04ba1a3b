# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# guest.sh DIRECTORY...: what tests/vm/machine.py runs as the VM's only program: /run/results/command -> its output and status.
#
# Every DIRECTORY of the host is writable in here, and the host never sees what is written. The read-only root that
# virtme-ng mounts does not cache; the second view of the same root, below the overlays, does, so that Python starts in
# seconds.
set -u
export FLEXTRACE_VM=1 TMPDIR=/run/scratch/tmp HOME=/run/scratch/home
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
nine_p=trans=virtio,version=9p2000.L,msize=512000

mkdir -p /run/results /run/host /run/scratch
mount -t 9p -o "$nine_p" results /run/results || exit
exec </dev/null >/run/results/output 2>&1

prepare() {
	local directory
	mount -t 9p -o "ro,cache=loose,$nine_p" host /run/host &&
		modprobe -a virtio_blk ext4 &&
		mount /dev/vda /run/scratch &&
		mkdir -p "$TMPDIR" "$HOME" /run/scratch/work || return
	for directory; do
		mkdir -p "/run/scratch/upper$directory" "/run/scratch/work$directory" &&
			mount -t overlay -o "lowerdir=/run/host$directory,upperdir=/run/scratch/upper$directory,workdir=/run/scratch/work$directory" \
				overlay "$directory" || return
	done
	# It looks into each disk that was written to, and the kernel counts that beside what the tests do.
	udevadm control --exit
	cd "$1" || return
	# The recorder's clocks and the host's are compared nowhere, so uptime tells what a boot cost.
	echo "Linux $(uname -r), up $(cut -d' ' -f1 /proc/uptime) s"
}

prepare "$@" && bash /run/results/command
echo $? >/run/results/status
dmesg >/run/results/dmesg

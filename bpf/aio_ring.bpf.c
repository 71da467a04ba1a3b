// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Events in the completion rings of io_submit (libaio) -> ends of its requests (aio.bpf.c).
 */
#include "aio.bpf.h"
#include "async_record.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	/* In a ring: twice the requests that it was made for, in whole pages; the kernel allows 2^23. */
	EVENTS_MAX = 1 << 22,
	RING_MAGIC = 0xa10a10a1,
};

struct user_event {
	__u64 data;
	__u64 iocb;
	__s64 result;
	__s64 result2;
};

/* struct aio_ring of fs/aio.c: not in the kernel's user interface, but unchanged for as long as libaio has read it. */
struct user_ring {
	__u32 id;
	__u32 entries;
	__u32 head;
	__u32 tail;
	__u32 magic;
	__u32 compat_features;
	__u32 incompat_features;
	__u32 header_bytes;
};

struct events {
	__u64 address;
	__u64 now_ns;
	__u64 context; /* of the process that runs */
	__u32 entries; /* of the array or ring */
	__u32 first; /* index of the first to take */
	__u32 taken;
	__u32 unreadable;
};

static __always_inline __u32 event_index(const struct events *events, __u32 count)
{
	return (events->first + count) % events->entries;
}

static long take_event(__u32 index, void *context)
{
	struct events *events = context;
	struct user_event event;
	const struct user_event *at = (const struct user_event *)events->address + event_index(events, index);
	if (bpf_probe_read_user(&event, sizeof(event), at)) {
		events->unreadable = 1;
		return 1;
	}
	__u64 process = bpf_get_current_pid_tgid() >> 32;
	aio_request_ends(event.iocb, process, event.result, events->now_ns, events->context);
	/* Not counted up: the verifier would follow every value. */
	events->taken = index + 1;
	return 0;
}

/* Events from one index of a ring up to another. */
static __always_inline __u32 distance(const struct user_ring *ring, __u32 from, __u32 to)
{
	return to >= from ? to - from : to + ring->entries - from;
}

/* Another thread may have looked meanwhile: what is further counts. */
static __always_inline void move_on(struct aio_context *known, const struct user_ring *ring, __u32 seen, __u32 next)
{
	__u32 found = __sync_val_compare_and_swap(&known->seen, seen, next);
	if (found != seen && distance(ring, seen, found) < distance(ring, seen, next))
		__sync_val_compare_and_swap(&known->seen, found, next);
}

int aio_scan_ring(__u64 context)
{
	struct user_ring ring;
	struct async_key key = async_key_of(context);
	struct aio_context *known = bpf_map_lookup_elem(&aio_contexts, &key);
	__u32 before = known ? known->seen : 0;
	/* All is 0 if it cannot be read: nobody has used a context whose ring was never touched. */
	bpf_probe_read_user(&ring, sizeof(ring), (const void *)context);
	__u64 now_ns = bpf_ktime_get_ns();
	if (!known) {
		struct aio_context fresh = {.seen = ring.tail};
		int error = bpf_map_update_elem(&aio_contexts, &key, &fresh, BPF_NOEXIST);
		if (error && error != ENTRY_EXISTS)
			count_loss(RECORD_IO, now_ns);
		return ring.magic == RING_MAGIC;
	}
	/* Read behind the clock: what begins when another thread is through with an event does not end by that. */
	__u32 seen = known->seen;
	if (ring.magic != RING_MAGIC || ring.entries > EVENTS_MAX || ring.tail >= ring.entries ||
	    ring.head >= ring.entries || before >= ring.entries || seen >= ring.entries)
		return 0;
	/* That thread may be through with all that was there, and more. */
	if (distance(&ring, before, seen) >= distance(&ring, before, ring.tail))
		return 1;
	struct events events = {
		.address = context + sizeof(ring),
		.now_ns = now_ns,
		.context = context,
		.entries = ring.entries,
		.first = seen,
	};
	bpf_loop(distance(&ring, seen, ring.tail), take_event, &events, 0);
	/*
	 * A page of the ring that the program has never read is not there. What io_getevents has taken from it is seen as it
	 * is returned; what nobody has taken yet is for later.
	 */
	__u32 next = event_index(&events, events.taken);
	if (events.unreadable && distance(&ring, next, ring.tail) > distance(&ring, ring.head, ring.tail))
		next = ring.head;
	move_on(known, &ring, seen, next);
	return !events.unreadable;
}

/* The ring is new, and its first page mostly not readable yet. */
int aio_context_begins(__u64 address)
{
	__u64 context = 0;
	bpf_probe_read_user(&context, sizeof(context), (const void *)address);
	struct async_key key = async_key_of(context);
	bpf_map_delete_elem(&aio_contexts, &key);
	return 0;
}

int aio_context_ends(__u64 context)
{
	aio_scan_ring(context);
	struct async_key key = async_key_of(context);
	bpf_map_delete_elem(&aio_contexts, &key);
	return 0;
}

/* One in which no request was submitted has none to await; nor is it entered, as its process may not be noted. */
static __always_inline bool awaits(__u64 context)
{
	struct async_key key = async_key_of(context);
	const struct aio_context *known = bpf_map_lookup_elem(&aio_contexts, &key);
	return known && known->awaited > 0;
}

int aio_look(__u64 context)
{
	return awaits(context) ? aio_scan_ring(context) : 0;
}

/*
 * Between two looks no event is overwritten: a ring has room for all requests that may be in flight, and a look is taken
 * before there are more.
 */
int aio_events_returned(__u64 context, __u64 address, __s64 count)
{
	if (!awaits(context) || aio_scan_ring(context) || count <= 0)
		return 0;
	struct events events = {
		.address = address,
		.now_ns = bpf_ktime_get_ns(),
		.context = context,
		.entries = EVENTS_MAX,
	};
	bpf_loop(count < EVENTS_MAX ? count : EVENTS_MAX, take_event, &events, 0);
	return 0;
}

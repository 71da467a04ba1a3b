// SPDX-License-Identifier: Apache-2.0
// Turns records that cannot be read any more into zeros and a stop.
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "replayer/engine/trace_loss.h"

static struct {
	uintptr_t begin, end;
	uintptr_t page_bytes;
	atomic_bool *stop;
	atomic_bool happened;
} watched;

/* In the thread that wanted to read, and then does so again. */
static void on_bus_error(int number, siginfo_t *information, void *context)
{
	uintptr_t address = (uintptr_t)information->si_addr;
	void *page = (void *)(address / watched.page_bytes * watched.page_bytes);

	(void)context;
	if (address < watched.begin || address >= watched.end) {
		signal(number, SIG_DFL); /* of which it dies now */
		return;
	}
	atomic_store(&watched.happened, true);
	atomic_store(watched.stop, true);
	if (mmap(page, watched.page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		signal(number, SIG_DFL);
}

void trace_loss_watch(const void *map, size_t bytes, atomic_bool *stop)
{
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART};

	watched.page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	watched.begin = (uintptr_t)map;
	watched.end = watched.begin + bytes;
	watched.stop = stop;
	sigaction(SIGBUS, &action, NULL);
}

bool trace_is_lost(void)
{
	return atomic_load(&watched.happened);
}

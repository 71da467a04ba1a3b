/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the begin of a path into whether it is one of the operating system's own files. */
#ifndef FLEXTRACE_SYSTEM_PATH_H
#define FLEXTRACE_SYSTEM_PATH_H

#include <stdbool.h>

#include "bpf/trace_format.h"

/* `text` is the first piece of the path, which is longer than any of these. As characterize/requests.py, is_system_path. */
bool is_system_path(const struct text_record *text);

#endif

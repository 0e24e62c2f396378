/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of single requests: when a request was read, waited, was gathered with others, computed,
 * copied out and written. One request in so many is traced, and each whose client says so by W3C's
 * traceparent.
 *
 * A loop takes a record from those that it has (when all are in use, the request goes without, and
 * a counter says so), notes times in it, and pushes it on a stack, which the monitor empties. The
 * monitor writes it out (daemon/monitor/trace_out.h) and pushes it back. Nothing is allocated on a
 * request's way, and there is no lock.
 */
#ifndef INFERD_DAEMON_TRACE_H
#define INFERD_DAEMON_TRACE_H

#include "base/cause.h"
#include "proto/message.h"

struct inflight;

enum { TRACE_RECORDS = 256, TRACE_ID = 16, TRACE_SPAN = 8 };

/* Who asked for the request to be traced. */
struct trace_parent {
    uint8_t trace[TRACE_ID], span[TRACE_SPAN];
    bool sampled;
};

/* "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" (W3C Trace Context, section 3.2).
 * False: it is none, and the request begins a trace of its own. */
bool trace_parent_parse(struct message_text text, struct trace_parent *out);

/* Moments are clock_now_ns; 0: it did not come to that. */
struct trace {
    struct trace *next;
    struct trace_parent parent; /* its trace; `span` is all zeros if nobody asked */
    uint8_t span[TRACE_SPAN];   /* of the whole request */
    uint64_t read_ns, decoded_ns, queued_ns, gather_ns, answered_ns, written_ns;
    uint64_t input_ns, compute_ns, output_ns; /* how long, one behind the other from gather_ns on */
    enum cause cause;
    bool of_step; /* of a pipeline: its `id` is the step, and `parent.span` the request's span */
    uint32_t loop, instances, batch; /* batch: instances that ran together */
    char model[MESSAGE_MAX_NAME + 1], version[MESSAGE_MAX_NAME + 1];
    char id[MESSAGE_MAX_ID + 1]; /* the client's */
};

struct traces;

/* NULL: no memory. */
struct traces *traces_new(uint32_t n_loops);
void traces_free(struct traces *traces); /* NULL is fine */

/* One request in so many; 0: none, whoever asks. Any thread. */
void traces_rate_set(struct traces *traces, uint32_t rate);
uint32_t traces_rate(const struct traces *traces);
/* How many more of these there will be; below 0, as in the beginning: any number. Those that
 * clients ask for do not count. Any thread. */
void traces_left_set(struct traces *traces, int64_t left);
int64_t traces_left(const struct traces *traces);

/* --- on a loop's thread --- */

/* A record for a request if it is to be traced, else NULL; *dropped: it was, but there is no
 * record. */
struct trace *trace_begin(struct traces *traces, uint32_t loop, struct message_text parent,
                          bool *dropped);
/* A record for a step of the request that `whole` is about, in its trace; else as above. */
struct trace *trace_begin_step(struct traces *traces, const struct trace *whole, bool *dropped);
/* The request has been read whole, and goes to its queue. */
void trace_decoded(struct trace *trace);
/* The request is answered: takes over what its way through queue and batch has noted. */
void trace_answered(struct trace *trace, const struct inflight *inflight);
/* The reply is on its way, or there is none; the record is the monitor's. */
void trace_end(struct traces *traces, struct trace *trace);

/* --- on the monitor's thread --- */

/* All records that came since the last call, the latest first. */
struct trace *traces_take(struct traces *traces, uint32_t loop);
void traces_give(struct traces *traces, struct trace *trace);

#endif

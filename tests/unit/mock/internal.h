/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the mock share: device.c is the device, ops.c compiles and runs ops for it. */
#ifndef INFERD_TESTS_UNIT_MOCK_INTERNAL_H
#define INFERD_TESTS_UNIT_MOCK_INTERNAL_H

#include <pthread.h>

#include "engine/tune/internal.h"
#include "tests/unit/mock/mock.h"

enum {
    RANGES_MAX = 4096,
    QUEUE_MAX = 256,
    PORTS_MAX = 16,
    COPIES_MAX = 64,
    CAPTURES_MAX = 64,
    POISON = 0xC5,
    PINNED_MAX = 64 << 20,
};

/* Memory is seen from outside at `at`, but lies at `real`. For pinned memory both are the same; all
 * of it lies in one block, one allocation right behind the other. */
struct range {
    char *at, *real;
    size_t size, reserved;
    enum memory_kind kind;
};

struct mock_device {
    struct device base;
    struct device *cpu;
    pthread_mutex_t lock; /* guards everything below, and all queues and events */
    pthread_cond_t moved; /* signals that a queue or an event has changed */
    struct range ranges[RANGES_MAX];
    uint32_t n_ranges;
    char *pinned; /* room for PINNED_MAX */
    struct mock_counts counts;
    uint64_t delay_ns;
    struct mock_capture captures[CAPTURES_MAX]; /* those that have ended */
    uint32_t n_captures;
    uint64_t turns; /* launches of marked graphs, which are numbered */
    /* how many of them have finished their first half; they do so in order */
    uint64_t halves;
    struct backend_graph *turn; /* the one launched last; NULL: none, or it has been freed */
    struct compiled *compiled;
    pthread_t compiler; /* the first thread that compiled */
    bool simulated;     /* the fields from here on are a simulated device's */
    struct backend table;
    struct mock_script script;
    uint64_t now_ns, waited_ns, n_spent, open_ops;
};

/* The key of a tactic that has been compiled. */
struct compiled {
    struct tune_key key;
    struct compiled *next;
};

enum task_kind { TASK_COPY, TASK_OP, TASK_EVENT, TASK_HALF, TASK_GRAPH };

struct task {
    enum task_kind kind;
    uint32_t n_copies;
    struct backend_copy copies[COPIES_MAX]; /* real addresses */
    struct backend_op *op;
    void *inputs[PORTS_MAX], *outputs[PORTS_MAX], *workspace; /* real addresses */
    struct backend_event *event;
    struct backend_graph *graph;
    /* a marked graph's number, and that of the launch whose half it waits for; 0: none */
    uint64_t turn, behind;
};

struct backend_stream {
    struct mock_device *device;
    pthread_t thread;
    struct task *queue; /* a ring of QUEUE_MAX tasks */
    uint64_t head, tail;
    bool stop;
    struct backend_graph *capture; /* the graph being recorded, or NULL */
    uint32_t graphs;               /* graphs captured on this stream and not yet freed */
};

struct backend_event {
    struct mock_device *device;
    uint64_t recorded, passed; /* how often each has happened */
    uint64_t at_ns;
    bool timing;
};

struct backend_graph {
    struct mock_device *device;
    struct backend_stream *stream; /* where it was captured, and where it runs */
    struct task *tasks;
    uint32_t n;
    uint64_t launched, ended;
    struct mock_capture what;
};

struct backend_op {
    struct mock_device *device;
    struct backend_op *inner;
    struct backend_stream *stream; /* a stream of the CPU */
    uint32_t n_in, n_out;
    const struct ir_graph *graph;
    const struct ir_node *node;
    struct tactic tactic;
    const void *constant; /* on a simulated device, the constant that the last launch read */
};

struct backend_arena {
    struct mock_device *device;
    uint32_t range;
};

static inline struct mock_device *mock_of(const struct device *device)
{
    return (struct mock_device *)(uintptr_t)device;
}

void mock_count(struct mock_device *d, uint64_t *what, uint64_t n);
/* Finds the real addresses; NULL stays NULL. Returns false if an address is not the device's. The
 * caller holds the lock. */
bool mock_find_all(const struct mock_device *d, uint32_t n, void *const *at, void **real);
/* mock_task_new finds room for a task, in the graph that is being captured or at the end of the
 * queue; mock_task_put says that the task is complete. The caller holds the lock. */
struct task *mock_task_new(struct backend_stream *s);
void mock_task_put(struct backend_stream *s);
/* Advances the clock of a simulated device by the time of a launch. */
void mock_spend(const struct backend_op *op);

enum status mock_candidates(struct device *device, const struct ir_graph *graph,
                            const struct ir_node *node, enum precision precision,
                            tactic_visit visit, void *user, struct error *err);
enum status mock_pack(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                      void *to, struct error *err);
enum status mock_compile(struct device *device, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic,
                         struct error *err);
void mock_compile_drop(struct device *device);
enum status mock_code(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, struct arena *arena,
                      const void **out, uint64_t *size, struct error *err);
enum status mock_op_prepare(struct backend_stream *s, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct backend_op **out, struct error *err);
uint64_t mock_op_workspace(const struct backend_op *op);
void mock_op_free(struct backend_op *op);
enum status mock_op_launch(struct backend_op *op, struct backend_stream *s, void *const *inputs,
                           void *const *outputs, void *workspace, struct error *err);

#endif

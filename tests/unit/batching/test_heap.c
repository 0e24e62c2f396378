/* SPDX-License-Identifier: Apache-2.0 */
/* The heap against a scan of an array, under random inserts and removals from anywhere. */
#include <stdbool.h>
#include <stdlib.h>

#include "batching/heap.h"
#include "tests/test.h"

enum { NODES = 300, ROUNDS = 200000 };

static void the_least_is_at_the_root(void **state)
{
    (void)state;
    static struct heap_node nodes[NODES];
    static bool in[NODES];
    struct heap_node *root = NULL;
    srand(1);
    for (int round = 0; round < ROUNDS; round++) {
        int i = rand() % NODES;
        /* Fill and empty in turns, so that both long and short heaps are seen. */
        bool fill = (round / 2000) % 2 == 0;
        if (in[i] && (!fill || rand() % 4 == 0)) {
            heap_remove(&root, &nodes[i]);
            in[i] = false;
        } else if (!in[i] && (fill || rand() % 4 == 0)) {
            heap_insert(&root, &nodes[i], (uint64_t)rand() % 50, (uint64_t)rand() % 50);
            in[i] = true;
        }
        const struct heap_node *least = NULL;
        for (int k = 0; k < NODES; k++) {
            if (in[k] && (!least || nodes[k].key < least->key ||
                          (nodes[k].key == least->key && nodes[k].tie < least->tie)))
                least = &nodes[k];
        }
        if (!least) {
            assert_null(root);
            continue;
        }
        assert_non_null(root);
        assert_int_equal(root->key, least->key);
        assert_int_equal(root->tie, least->tie);
    }
}

static void it_sorts(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    struct heap_node *nodes = calloc(MANY, sizeof(*nodes)), *root = NULL;
    assert_non_null(nodes);
    for (uint64_t i = 0; i < MANY; i++) /* ascending keys make the longest list of siblings */
        heap_insert(&root, &nodes[i], i, 0);
    for (uint64_t i = 0; i < MANY; i++) {
        assert_non_null(root);
        assert_int_equal(root->key, i);
        heap_remove(&root, root);
    }
    assert_null(root);
    free(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_is_at_the_root),
        cmocka_unit_test(it_sorts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

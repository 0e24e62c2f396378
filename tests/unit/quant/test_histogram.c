/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms that widen, and the three methods; the search by entropy beside a plain version of the
 * published pseudo-code. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/histogram.h"
#include "engine/quant/method.h"
#include "tests/test.h"

static uint64_t dice = 7;

static double uniform(void)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(dice >> 11) / (double)(UINT64_C(1) << 53);
}

static float normal(void)
{
    return (float)(sqrt(-2 * log(uniform() + 1e-300)) * cos(2 * 3.14159265358979 * uniform()));
}

static void fill(float *values, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++) {
        float x = normal();
        values[i] = kind == 0   ? x
                    : kind == 1 ? fmaxf(x, 0)
                    : kind == 2 ? x * x * x
                                : (float)uniform() * (i % 97 ? 1 : 9);
    }
}

static void check_sum(const struct quant_histogram *h)
{
    uint64_t sum = h->zeros;
    for (int i = 0; i < QUANT_BINS; i++)
        sum += h->bins[i];
    assert_int_equal(sum, h->count);
}

/* The same values in one piece and in pieces of any size and order give the same histogram. */
static void order_and_pieces_do_not_matter(void **state UNUSED)
{
    enum { N = 50000 };
    float *values = malloc(N * sizeof(*values));
    struct quant_histograms set;
    assert_true(quant_histograms_init(&set, 2));
    fill(values, N, 2);
    values[17] = 0;
    values[N - 1] = 3000;
    quant_histogram_add(&set, 0, values, N);
    for (size_t end = N, piece = 1; end > 0; piece = piece * 7 % 6007 + 1) {
        size_t n = MIN(piece, end);
        end -= n;
        quant_histogram_add(&set, 1, values + end, n);
    }
    const struct quant_histogram *a = &set.list[0], *b = &set.list[1];
    assert_memory_equal(a->bins, b->bins, QUANT_BINS * sizeof(*a->bins));
    assert_int_equal(a->exponent, b->exponent);
    assert_int_equal(a->count, N);
    assert_int_equal(b->count, N);
    assert_int_equal(a->zeros, b->zeros);
    assert_true(a->least == b->least && a->most == b->most && a->most == 3000);
    check_sum(a);
    quant_histograms_deinit(&set);
    free(values);
}

/* Each value lies in the bin that its magnitude names, and at least half of the bins are used. */
static void bins_are_where_values_are(void **state UNUSED)
{
    static const float values[] = {1,     -1,     0.5F,    3.999F, 4,     1e-30F,
                                   65504, -1e20F, FLT_MAX, 2e-40F, -0.0F, FLT_MIN};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct quant_histograms set;
        assert_true(quant_histograms_init(&set, 1));
        quant_histogram_add(&set, 0, &values[i], 1);
        const struct quant_histogram *h = &set.list[0];
        check_sum(h);
        int used = QUANT_BINS;
        while (used && !h->bins[used - 1])
            used--;
        double width = ldexp(1, h->exponent), x = fabs((double)values[i]);
        if (values[i] == 0) {
            assert_int_equal(h->zeros, 1);
            assert_int_equal(used, 0);
        } else {
            assert_true(x >= (used - 1) * width && x < used * width);
            assert_true(used > QUANT_BINS / 2 || x < 1e-34);
        }
        quant_histograms_deinit(&set);
    }
}

static void what_is_not_finite_counts_apart(void **state UNUSED)
{
    static float values[20000];
    struct quant_histograms set;
    assert_true(quant_histograms_init(&set, 1));
    fill(values, ARRAY_LEN(values), 0);
    values[3] = NAN;
    values[10000] = INFINITY;
    values[19999] = -INFINITY;
    quant_histogram_add(&set, 0, values, ARRAY_LEN(values));
    assert_int_equal(set.list[0].bad, 3);
    assert_int_equal(set.list[0].count, ARRAY_LEN(values) - 3);
    assert_true(isfinite(set.list[0].least) && isfinite(set.list[0].most));
    check_sum(&set.list[0]);
    quant_histograms_deinit(&set);
}

/* --- the methods --- */

/* "8-bit Inference with TensorRT", page 38, bin by bin; zeros have no bin. */
static double plain_divergence(const uint64_t *bins, int used, int kept, int levels)
{
    double *p = calloc((size_t)kept, sizeof(*p)), *q = calloc((size_t)kept, sizeof(*q));
    double sum_p = 0, sum_q = 0, divergence = 0;
    for (int i = 0; i < used; i++)
        p[MIN(i, kept - 1)] += (double)bins[i];
    for (int level = 0; level < levels; level++) {
        double sum = 0;
        int filled = 0;
        for (int i = 0; i < kept; i++)
            if ((int64_t)i * levels / kept == level) {
                sum += (double)bins[i];
                filled += bins[i] != 0;
            }
        for (int i = 0; i < kept; i++)
            if ((int64_t)i * levels / kept == level && bins[i])
                q[i] = sum / filled;
    }
    for (int i = 0; i < kept; i++) {
        sum_p += p[i];
        sum_q += q[i];
    }
    for (int i = 0; i < kept; i++)
        if (p[i] > 0)
            divergence += q[i] > 0 ? p[i] / sum_p * log((p[i] / sum_p) / (q[i] / sum_q)) : INFINITY;
    free(p);
    free(q);
    return divergence;
}

/* Only some numbers of bins are tried by the slow version, so the fast one must be at least as
 * good as all of these, by the slow version's own measure. */
static void entropy_is_the_published_search(void **state UNUSED)
{
    enum { N = 600000 }; /* enough for every bin */
    float *values = malloc(N * sizeof(*values));
    for (int kind = 0; kind < 4; kind++) {
        struct quant_histograms set;
        int levels = kind % 2 ? 256 : 128, used = QUANT_BINS;
        float limit = 0;
        assert_true(quant_histograms_init(&set, 1));
        fill(values, N, kind);
        quant_histogram_add(&set, 0, values, N);
        const struct quant_histogram *h = &set.list[0];
        while (!h->bins[used - 1])
            used--;
        assert_true(quant_limit(h, QUANT_ENTROPY, 0, (uint32_t)levels, &limit));
        int kept = (int)lround(ceil((double)limit / ldexp(1, h->exponent)));
        double found = plain_divergence(h->bins, used, kept, levels);
        assert_true(found < INFINITY);
        for (int i = levels; i <= used; i += 23) {
            double other = plain_divergence(h->bins, used, i, levels);
            if (other < found - 1e-9)
                fail_msg("kind %d: %d bins diverge by %g, %d by %g", kind, kept, found, i, other);
        }
        quant_histograms_deinit(&set);
    }
    free(values);
}

static float limit_of(const float *values, size_t n, enum quant_method method, double percentile)
{
    struct quant_histograms set;
    float limit = NAN;
    assert_true(quant_histograms_init(&set, 1));
    quant_histogram_add(&set, 0, values, n);
    assert_true(quant_limit(&set.list[0], method, percentile, 128, &limit));
    quant_histograms_deinit(&set);
    return limit;
}

static int by_magnitude(const void *a, const void *b)
{
    float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);
    return (x > y) - (x < y);
}

static void percentiles_are_those_of_sorted_values(void **state UNUSED)
{
    static const double list[] = {50, 90, 99, 99.9, 99.99, 100};
    enum { N = 40000 };
    float *values = malloc(N * sizeof(*values));
    for (int kind = 0; kind < 4; kind++) {
        fill(values, N, kind);
        for (size_t i = 0; i < ARRAY_LEN(list); i++) {
            float got = limit_of(values, N, QUANT_PERCENTILE, list[i]);
            qsort(values, N, sizeof(*values), by_magnitude);
            float most = fabsf(values[N - 1]);
            float want = fabsf(values[MAX((size_t)ceil(list[i] / 100 * N), (size_t)1) - 1]);
            if (fabsf(got - want) > most / 2048)
                fail_msg("kind %d, %g%%: %g instead of %g", kind, list[i], (double)got,
                         (double)want);
        }
        assert_true(limit_of(values, N, QUANT_MINMAX, 0) == fabsf(values[N - 1]));
    }
    free(values);
}

/* An outlier far off is clipped by entropy and percentile, and not by minmax. */
static void outliers_are_clipped(void **state UNUSED)
{
    enum { N = 400000 };
    float *values = malloc(N * sizeof(*values));
    fill(values, N, 0);
    values[5] = 100;
    assert_true(limit_of(values, N, QUANT_MINMAX, 0) == 100);
    assert_true(limit_of(values, N, QUANT_PERCENTILE, 99.99) < 6);
    assert_true(limit_of(values, N, QUANT_ENTROPY, 0) < 20);
    free(values);
}

/* So few values say nothing of what may be cut; with more of them something is cut. */
static void few_values_are_not_cut(void **state UNUSED)
{
    enum { N = 1 << 18 };
    float *values = malloc(N * sizeof(*values));
    for (size_t i = 0; i < N; i++)
        values[i] = normal();
    for (size_t n = 2; n <= 1 << 12; n *= 2) {
        float most = limit_of(values, n, QUANT_MINMAX, 0);
        assert_true(limit_of(values, n, QUANT_ENTROPY, 0) == most);
    }
    assert_true(limit_of(values, 1 << 14, QUANT_ENTROPY, 0) > 2);
    assert_true(limit_of(values, N, QUANT_ENTROPY, 0) < limit_of(values, N, QUANT_MINMAX, 0));
    free(values);
}

static void few_values_and_zeros(void **state UNUSED)
{
    static const float zeros[4] = {0}, one[] = {-2.5F}, two[] = {0, 1e-3F, 0};
    assert_true(limit_of(zeros, 4, QUANT_ENTROPY, 0) == 0);
    assert_true(limit_of(zeros, 4, QUANT_PERCENTILE, 99) == 0);
    for (int method = 0; method <= QUANT_ENTROPY; method++) {
        assert_true(limit_of(one, 1, (enum quant_method)method, 100) == 2.5F);
        assert_true(limit_of(two, 3, (enum quant_method)method, 100) == 1e-3F);
    }
    assert_true(limit_of(zeros, 0, QUANT_ENTROPY, 0) == 0);
}

static void methods_have_names(void **state UNUSED)
{
    static const char *const bad[] = {"",
                                      "median",
                                      "entropy=1",
                                      "percentile=",
                                      "percentile=0",
                                      "percentile=101",
                                      "percentile=nan",
                                      "percentile=9x",
                                      "minmax=2"};
    enum quant_method method;
    double percentile;
    char text[32];
    struct error err;
    for (int i = 0; i <= QUANT_ENTROPY; i++) {
        quant_method_format((enum quant_method)i, 99.5, text);
        assert_int_equal(quant_method_parse(text, &method, &percentile, &err), STATUS_OK);
        assert_int_equal(method, i);
        assert_true(i != QUANT_PERCENTILE || percentile == 99.5);
    }
    assert_int_equal(quant_method_parse("percentile", &method, &percentile, &err), STATUS_OK);
    assert_true(percentile == 99.99);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(quant_method_parse(bad[i], &method, &percentile, &err),
                         STATUS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_pieces_do_not_matter),
        cmocka_unit_test(bins_are_where_values_are),
        cmocka_unit_test(what_is_not_finite_counts_apart),
        cmocka_unit_test(entropy_is_the_published_search),
        cmocka_unit_test(percentiles_are_those_of_sorted_values),
        cmocka_unit_test(outliers_are_clipped),
        cmocka_unit_test(few_values_are_not_cut),
        cmocka_unit_test(few_values_and_zeros),
        cmocka_unit_test(methods_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

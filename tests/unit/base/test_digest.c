/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/digest.h"
#include "tests/test.h"

static void check(struct digest *d, const char *text, const char *want)
{
    uint8_t digest[DIGEST_BYTES];
    char hex[DIGEST_TEXT];
    size_t half = strlen(text) / 2;
    digest_add(d, text, half);
    digest_add(d, "", 0);
    digest_add(d, text + half, strlen(text) - half);
    assert_true(digest_finish(d, digest));
    digest_text(digest, hex);
    assert_string_equal(hex, want);
}

/* The examples of FIPS 180-2, appendix B, and the empty message, computed one after the other with
 * the same object. */
static void the_standards_examples(void **state)
{
    (void)state;
    struct digest *d = digest_new();
    assert_non_null(d);
    check(d, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check(d, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check(d, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    digest_free(d);
    digest_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_standards_examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

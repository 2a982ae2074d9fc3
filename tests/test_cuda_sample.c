/* Choosing tokens on a GPU: the tests of test_sample.c, on the machine cuda:0. */
int main_of_test_sample(void);
#define main main_of_test_sample
#include "test_sample.c"
#undef main

static int set_up_gpu(void **state) {
    const char *given = getenv("MONOTILE_CACHE");
    char *cache = given ? strdup(given) : NULL;
    const int result = set_up(state);
    if (cache) setenv("MONOTILE_CACHE", cache, 1); /* code may be there already */
    free(cache);
    return result;
}

static bool no_gpu(void) {
    mt_error error = {0};
    mt_machine *m;
    the_machine = getenv("CUDA_MACHINE") ? getenv("CUDA_MACHINE") : "cuda:0";
    if (mt_machine_open(&m, the_machine, &error) == MT_OK) return mt_machine_close(m), false;
    print_message("skipped: no GPU: %s\n", error.message);
    return true;
}

#define ON_GPU(test)                                                                                                   \
    static void test##_on_gpu(void **state) {                                                                          \
        if (no_gpu()) skip();                                                                                          \
        test(state);                                                                                                   \
    }
ON_GPU(test_plain)
ON_GPU(test_few)
ON_GPU(test_filtered)
ON_GPU(test_large)
ON_GPU(test_distribution)
ON_GPU(test_ends)

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain_on_gpu),        cmocka_unit_test(test_few_on_gpu),
                                       cmocka_unit_test(test_filtered_on_gpu),     cmocka_unit_test(test_large_on_gpu),
                                       cmocka_unit_test(test_distribution_on_gpu), cmocka_unit_test(test_ends_on_gpu)};
    return cmocka_run_group_tests(tests, set_up_gpu, tear_down);
}

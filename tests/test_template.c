/* Chat templates: against Python's Jinja on templates of models, of single rules and random ones; errors with their
 * place; hostile templates; and the same from several cuts and mutations of a template, which must only never crash. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include "monotile/text.h"
#include "text_oracle.h"

static mt_status render(const char *source, size_t length, const mt_message *messages, size_t count, bool prompt,
                        char **out, size_t *out_length, mt_error *error) {
    mt_template *t = NULL;
    mt_status status = mt_template_new(&t, source, length, error);
    if (!status)
        status = mt_template_apply(t, messages, count, &(mt_template_options){prompt, "<s>", "</s>"}, out, out_length,
                                   error);
    mt_template_free(t);
    return status;
}

static char *copy(oracle *o) {
    size_t length;
    const char *s = oracle_string(o, &length);
    char *c = calloc(1, length + 1);
    assert_non_null(c);
    memcpy(c, s, length);
    return c;
}

static void check_against_jinja(const char *model) {
    oracle o;
    if (!oracle_run(&o, "oracle_template.py", model)) skip();
    size_t wrong = 0, right = 0, rejected = 0, unsupported = 0;
    const uint32_t cases = oracle_u32(&o);
    for (uint32_t i = 0; i < cases; i++) {
        size_t source_length, wanted_length, length = 0;
        const char *source = oracle_string(&o, &source_length);
        const bool prompt = oracle_u32(&o);
        const uint32_t count = oracle_u32(&o);
        mt_message messages[16];
        assert_true(count <= COUNT_OF(messages));
        for (uint32_t m = 0; m < count; m++) {
            messages[m].role = copy(&o);
            messages[m].content = copy(&o);
        }
        const bool good = oracle_u32(&o);
        const char *wanted = oracle_string(&o, &wanted_length);
        char *got = NULL;
        mt_error error = {0};
        const mt_status status = render(source, source_length, messages, count, prompt, &got, &length, &error);
        if (good && status == MT_E_UNSUPPORTED)
            unsupported++; /* with luck random templates write a list, or multiply a string */
        const bool same = (good && status == MT_E_UNSUPPORTED) ||
                          (good == !status && (!good || (length == wanted_length && !memcmp(got, wanted, length))));
        if (!same && wrong++ < 3)
            printf("--- case %u:\n%.*s\n--- wanted (%s):\n%.*s\n--- got:\n%s\n%s\n", i, (int)source_length, source,
                   good ? "success" : "failure", (int)wanted_length, wanted, got ? got : error.message, error.where);
        right += same && !status;
        rejected += same && !good;
        free(got);
        for (uint32_t m = 0; m < count; m++) {
            free((char *)messages[m].role);
            free((char *)messages[m].content);
        }
    }
    assert_int_equal(o.at, o.bytes.length);
    text_free(&o.bytes);
    print_message("%zu rendered alike, %zu rejected alike, %zu not supported\n", right, rejected, unsupported);
    assert_true(unsupported <= cases / 100);
    assert_int_equal(wrong, 0);
}

static void test_against_jinja(void **state) {
    (void)state;
    check_against_jinja("-");
}

static void test_model_template(void **state) {
    (void)state;
    const char *model = getenv("MONOTILE_MODEL");
    if (!model || !*model) {
        print_message("SKIPPED: MONOTILE_MODEL names no model file\n");
        skip();
    }
    check_against_jinja(model);
}

static const mt_message hello[] = {{"user", "Hello"}};

static void expect_text(const char *source, const char *wanted) {
    char *got = NULL;
    mt_error error = {0};
    if (render(source, strlen(source), hello, 1, true, &got, NULL, &error))
        fail_msg("%s: %s", error.where, error.message);
    assert_string_equal(got, wanted);
    free(got);
}

static void expect_error(const char *source, mt_status status, const char *where, const char *part) {
    char *got = NULL;
    mt_error error = {0};
    assert_int_equal(render(source, strlen(source), hello, 1, true, &got, NULL, &error), status);
    assert_null(got);
    if (strcmp(error.where, where) || !strstr(error.message, part))
        fail_msg("\"%s\" at %s, for %s", error.message, error.where, source);
    assert_int_equal(render(source, strlen(source), hello, 1, true, &got, NULL, NULL), status);
}

static void test_errors(void **state) {
    (void)state;
    expect_error("a\n {% macro x() %}{% endmacro %}", MT_E_UNSUPPORTED, "chat template:2:5", "\"macro\"");
    expect_error("{% raw %}{{ x }}{% endraw %}", MT_E_UNSUPPORTED, "chat template:1:4", "\"raw\"");
    expect_error("{{ messages | map(attribute='role') }}", MT_E_UNSUPPORTED, "chat template:1:13", "filter \"map\"");
    expect_error("{{ 1 is divisibleby 2 }}", MT_E_FORMAT, "chat template:1:21", "too many arguments");
    expect_error("{{ 1 is lower }}", MT_E_UNSUPPORTED, "chat template:1:6", "test \"lower\"");
    expect_error("{{ 'a'.encode() }}", MT_E_UNSUPPORTED, "chat template:1:14", "method \"encode\" of a string");
    expect_error("{{ cycler(1) }}", MT_E_UNSUPPORTED, "chat template:1:10", "function \"cycler\"");
    expect_error("{{ messages | tojson(sort_keys=true) }}", MT_E_UNSUPPORTED, "chat template:1:32", "\"sort_keys\"");
    expect_error("{{ messages }}", MT_E_UNSUPPORTED, "chat template:1:4", "a list as text");
    expect_error("{{ 1 / 2 }}", MT_E_UNSUPPORTED, "chat template:1:6", "\"/\"");
    expect_error("{{ 2 ** 2 }}", MT_E_UNSUPPORTED, "chat template:1:6", "\"**\"");
    expect_error("{{ 'a' * 2 }}", MT_E_UNSUPPORTED, "chat template:1:8", "Arithmetic");
    expect_error("{{ 1.5 }}", MT_E_UNSUPPORTED, "chat template:1:4", "integers");
    expect_error("{{ 1 < 2 < 3 }}", MT_E_UNSUPPORTED, "chat template:1:10", "chain");
    expect_error("{% set a, b = 1 %}", MT_E_UNSUPPORTED, "chat template:1:9", "several names");
    expect_error("{% for x in [1] recursive %}{% endfor %}", MT_E_UNSUPPORTED, "chat template:1:17", "Recursive");
    expect_error("{{ messages[0].items }}", MT_E_UNSUPPORTED, "chat template:1:15", "without a call");
    expect_error("{{ x.y }}", MT_E_FORMAT, "chat template:1:5", "\".y\" is asked of something undefined");
    expect_error("{% if a %}\n{% endfor %}", MT_E_FORMAT, "chat template:2:4", "\"endfor\"");
    expect_error("{% if a %}\n", MT_E_FORMAT, "chat template:1:11", "before \"elif\"");
    expect_error("{{ 'a' + 1 }}", MT_E_FORMAT, "chat template:1:8", "a string and a number cannot be added");
    expect_error("{{ 99999999999999999999 }}", MT_E_LIMIT, "chat template:1:4", "too large");
    expect_error("{{ 9223372036854775807 + 1 }}", MT_E_LIMIT, "chat template:1:24", "64 bits");
    expect_error("{{ (-9223372036854775807 - 1) // -1 }}", MT_E_LIMIT, "chat template:1:31", "64 bits");
    expect_error("{{ raise_exception('roles ' ~ messages[0].role) }}", MT_E_ARGUMENT, "chat template:1:19",
                 "roles user");
    expect_error("\xFF", MT_E_FORMAT, "chat template", "UTF-8");
    expect_text("{{ (-9223372036854775807 - 1) % -1 }}{{ 9223372036854775807 }}", "09223372036854775807");
    expect_text("{% if nope %}{{ messages | selectattr('x') }}{% endif %}fine", "fine"); /* not reached */
    expect_text("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", "Hello");
    expect_text("{{ strftime_now('%%') }}{{ strftime_now('%Y')|length }}{{ strftime_now is defined }}", "%4True");
    char *got = NULL;
    mt_error error = {0};
    assert_int_equal(render("x", 1, &(mt_message){NULL, "a"}, 1, false, &got, NULL, &error), MT_E_ARGUMENT);
    static const char content[] = "{{ messages[0].content is none }}{{ messages[0].content }}";
    assert_int_equal(render(content, strlen(content), &(mt_message){"a", NULL}, 1, false, &got, NULL, &error), MT_OK);
    assert_string_equal(got, "TrueNone");
    free(got);
    mt_template *t = NULL;
    assert_int_equal(mt_template_new(&t, "{{ bos_token is defined }}", 26, NULL), MT_OK);
    assert_int_equal(mt_template_apply(t, NULL, 0, NULL, &got, NULL, NULL), MT_OK);
    assert_string_equal(got, "False");
    free(got);
    mt_template_free(t);
    /* The message's bytes need not be UTF-8. */
    static const char cut[] = "{{ messages[0].content[1:] }}{{ messages[0].content|lower|trim|length }}";
    assert_int_equal(render(cut, strlen(cut),
                            &(mt_message){"a", "\xFF\xFE"
                                               "a\xC3 "},
                            1, false, &got, NULL, &error),
                     MT_OK);
    assert_string_equal(got, "\xFE"
                             "a\xC3 4");
    free(got);
}

/* Text repeated into a template that must fail for its size. */
static void expect_limit(const char *before, const char *part, size_t times, const char *after) {
    text t = {0};
    char *got = NULL;
    mt_error error = {0};
    text_string(&t, before);
    for (size_t i = 0; i < times; i++) text_string(&t, part);
    text_string(&t, after);
    assert_false(t.failed);
    const mt_status status = render(t.data, t.length, hello, 1, true, &got, NULL, &error);
    if (status != MT_E_LIMIT) fail_msg("%s%s...: %s (%s)", before, part, mt_status_name(status), error.message);
    text_free(&t);
}

static void test_hostile_templates(void **state) {
    (void)state;
    expect_limit("{{ ", "(", 5000, "");
    expect_limit("{{ ", "[", 5000, "");
    expect_limit("{{ ", "{'a':", 5000, "");
    expect_limit("{{ ", "-", 5000, "1 }}");
    expect_limit("{{ ", "not ", 5000, "1 }}");
    expect_limit("{{ 1", "+1", 5000, " }}");
    expect_limit("{{ x", ".x", 5000, " }}");
    expect_limit("{{ x", "|trim", 5000, " }}");
    expect_limit("{{ x", " if 1 else x", 5000, " }}");
    expect_limit("{{ x", "[x", 5000, "");
    expect_limit("{{ ", "'a' ", 5000, "}}");
    expect_limit("", "{% if 1 %}", 5000, "");
    expect_limit("", "{% for x in y %}", 5000, "");
    expect_limit("", "a", (1 << 20) + 1, "");
    expect_limit(
        "{% set ns = namespace(a='aaaaaaaa') %}{% for x in range(100) %}{% set ns.a = ns.a + ns.a %}{% endfor %}", "",
        0, "");
    expect_limit("{% set ns = namespace(a=[1]) %}{% for x in range(100) %}{% set ns.a = ns.a + ns.a %}{% endfor %}", "",
                 0, "");
    expect_limit("{% set ns = namespace(a=[1]) %}{% for x in range(1000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a "
                 "| tojson }}",
                 "", 0, "");
    expect_limit("{% set ns = namespace(a=[1], b=[1]) %}{% for x in range(1000) %}{% set ns.a = [ns.a] %}{% set ns.b = "
                 "[ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
                 "", 0, "");
    expect_limit("{% set ns = namespace(a=[1]) %}{% for x in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ "
                 "ns.a | tojson | length }}",
                 "", 0, "");
    expect_limit("{% set ns = namespace(a=[1], b=[1]) %}{% for x in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set "
                 "ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
                 "", 0, "");
    expect_limit("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "", 0, "");
    expect_limit("{% set s = range(99999)|join %}{% for a in range(99999) %}{% if 'x' in s %}{% endif %}{% endfor %}",
                 "", 0, "");
    expect_limit("{% set s = range(99999)|join %}{% for a in range(99999) %}{{ s }}{% endfor %}", "", 0, "");
    expect_limit(
        "{% set s = range(99999)|join('\\x01') %}{% for a in range(99999) %}{% if s|tojson %}{% endif %}{% endfor %}",
        "", 0, "");
}

/* Cuts and changes of a template: any outcome but a crash. */
static void test_mutations(void **state) {
    (void)state;
    static const char source[] =
        "{%- set ns = namespace(a=1) %}{% for m in messages[::-1] if m.role is defined %}\n {{- loop.index ~ "
        "m['content'][1:-1]|trim(' x') + \"\\n\\u00e9\" }}"
        "{% set ns.a = ns.a * 2 // 3 %}{% else %}{# none #}{% endfor %}{{ {'k': [1, (2,)]}|tojson(indent=2) if ns.a >= "
        "0 and not x else 'a'.split('b')[-1].replace('a', 'c') }}"
        "{% set b %}x{{ range(3)|join(', ') }}{% endset %}{% if b in ['y'] %}1{% elif b == none %}2{% else %}3{% endif "
        "%}";
    static const char parts[] = "{}%#-+()[]'\"|.,:=\\ \n~i0";
    uint64_t seed = 1;
    size_t good = 0;
    for (size_t i = 0; i < 20000; i++) {
        char changed[sizeof source];
        size_t length = sizeof source - 1;
        memcpy(changed, source, sizeof source);
        if (i < length)
            length = i;
        else
            for (int k = 0; k < 1 + (int)(i % 3); k++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                changed[(seed >> 33) % length] = i % 2 ? parts[(seed >> 20) % (sizeof parts - 1)] : (char)(seed >> 56);
            }
        char *exact = malloc(length + 1), *got = NULL; /* so that a read past its end is seen */
        assert_non_null(exact);
        memcpy(exact, changed, length);
        good += !render(exact, length, hello, 1, true, &got, NULL, NULL);
        free(exact);
        free(got);
    }
    print_message("%zu of 20000 still render\n", good);
    assert_true(good > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_jinja),     cmocka_unit_test(test_model_template), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_hostile_templates), cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
